import FoundationEssentials
import StageModel
import StageTesting
import Testing

/// The requests of `doctor --online` to the servers of several applications.
@Suite(.server, .directory, .mountNamespace)
struct DoctorServerTests {
    private struct Report: Decodable {
        struct Check: Decodable, Equatable {
            var level, subject, finding: String
        }
        var checks: [Check]

        /// The checks of servers, in their order.
        var servers: [Check] { checks.filter { $0.subject.hasPrefix("server of ") } }
    }

    /// The first application's server responds only once the last one's was asked.
    @Test func serversOfSeveralApplicationsAreAskedAtTheSameTime() async throws {
        let installed = try await Installed()
        let server = installed.world.server
        let gate = Gate()
        var names = [installed.registration.application.text]
        for number in 1...7 {
            let name = "net.example.zoo\(number)"
            try installed.addOther(name)
            names.append(name)
        }
        func manifest(of name: String) throws -> Answer {
            let application = try ApplicationID(name)
            let manifest = Manifest(application: application, revision: 1, packs: [])
            return .content(manifest.json())
        }
        server.answer("/manifest.json", with: try manifest(of: names[0]).waiting(for: gate))
        let last = try manifest(of: names[7]).waiting(for: { gate.open() })
        server.answer("/\(names[7]).json", with: last)
        let ending = try await installed.run("doctor", "--online", "--json")
        let report = try JSONDecoder().decode(Report.self, from: Data(ending.output.utf8))
        let expected = names.map { name in
            Report.Check(level: "ok", subject: "server of \(name)", finding: "offers revision 1")
        }
        #expect(report.servers == expected, "\(ending)")
    }
}
