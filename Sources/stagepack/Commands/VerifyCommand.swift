import ArgumentParser
import StageContainer
import StageEngine
import StageModel
import StageSystem

struct VerifyCommand: SourcedSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "verify",
        abstract: "Compare every byte of staged packs with what was staged.",
        discussion: "Ends with status 3 if anything differs, and with 2 if a pack is not staged."
    )

    @Argument(help: "The packs; all staged ones if none is named.", transform: PackArgument.parse)
    var packs: [PackID] = []

    @OptionGroup(title: "Source") var source: SourceOptions
    @Flag(help: "Print the result as JSON.") var json = false

    var printsJSON: Bool { json }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let container = try Session(source).existingContainer()
        let reports = try await VerifyReport.make(of: packs, in: container)
        Console.print(Listing(elements: reports), asJSON: json)
        return reports.contains { !$0.differences.isEmpty } ? .findings : .success
    }
}

/// What `verify` prints of one pack.
struct VerifyReport: Codable, CustomStringConvertible {
    struct Difference: Codable {
        var kind: String
        var path: String
    }

    var pack: PackID
    var differences: [Difference]

    var description: String {
        guard !differences.isEmpty else { return "\(pack): as it was staged" }
        return differences.map { "\(pack): \($0.kind): \($0.path.forDisplay())" }
            .joined(separator: "\n")
    }

    /// Verifies packs, all staged ones if none is named.
    static func make(
        of packs: [PackID],
        in container: Container
    ) async throws(CommandFailure) -> [VerifyReport] {
        var reports: [VerifyReport] = []
        for id in packs.isEmpty ? try stagedPacks(of: container) : packs {
            guard let differences = try await Self.compare(id, in: container) else {
                throw .notStaged(id)
            }
            reports.append(VerifyReport(pack: id, differences: differences.map(Difference.init)))
        }
        return reports
    }

    private static func stagedPacks(of container: Container) throws(CommandFailure) -> [PackID] {
        do throws(ContainerError) {
            return try container.reader.stagedPacks()
        } catch {
            throw CommandFailure(error)
        }
    }

    private static func compare(
        _ id: PackID,
        in container: Container
    ) async throws(CommandFailure) -> [ContentListing.Difference]? {
        do throws(ContainerError) {
            return try await withBlockingThread { () throws(ContainerError) in
                try container.differences(in: id)
            }
        } catch {
            throw CommandFailure(error)
        }
    }
}

extension VerifyReport.Difference {
    fileprivate init(_ difference: ContentListing.Difference) {
        path = difference.path
        kind =
            switch difference {
            case .missing: "missing"
            case .added: "added"
            case .changed: "changed"
            }
    }
}
