import ArgumentParser
import FoundationEssentials
import StageContainer
import StageModel
import SystemPackage

struct CollectGarbageCommand: StagePackSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "gc",
        abstract: "Remove what nobody needs any more.",
        discussion: """
            Removes generations that are neither current nor read, except the previous one of each \
            pack, what a crash left behind, and downloads that no manifest names any more.
            """
    )

    @Flag(help: "Remove the previous generation of each pack, too.")
    var all = false

    @Flag(
        help: ArgumentHelp(
            "Remove the packs of applications that were registered and are no more, in every "
                + "container of the system (as root) or of the user."
        )
    )
    var unregistered = false

    @OptionGroup(title: "Source") var source: SourceOptions
    @Flag(help: "Print the result as JSON.") var json = false

    var printsJSON: Bool { json }

    mutating func validate() throws {
        if unregistered, source.app != nil || !source.manifest.isEmpty {
            throw ValidationError("--unregistered excludes --app and --manifest.")
        }
    }

    func perform() async throws(CommandFailure) -> ExitStatus {
        let session = try Session(source)
        guard !unregistered else {
            Console.print(try await UnregisteredReport.make(session), asJSON: json)
            return .success
        }
        let container = try session.existingContainer()
        do throws(ContainerError) {
            var report = GarbageReport()
            for id in try container.packsWithGenerations() {
                // A pack that is being staged is left to the process that stages it.
                guard let lock = try container.attemptLock(id) else { continue }
                report.add(try container.removeObsoleteGenerations(lock, keeping: all ? 0 : 1))
            }
            let wanted = try Self.wantedDownloads(container)
            let now = Int64(Date().timeIntervalSince1970)
            report.add(
                try container.sweep(now: now) { wanted?.contains(prefix(of: $0)) ?? true }
            )
            if let wanted {
                report.leftovers += try container.removePartialContent { digest in
                    wanted.contains(digest.description)
                }
            }
            Console.print(report, asJSON: json)
            return .success
        } catch {
            throw CommandFailure(error)
        }
    }

    private func prefix(of name: FilePath.Component) -> String {
        String(name.string.prefix { $0 != "." })
    }

    /// The archives that the manifests of all applications name, whose downloads can be continued;
    /// `nil` while one of them cannot be read.
    private static func wantedDownloads(
        _ container: Container
    ) throws(ContainerError) -> Set<String>? {
        var wanted: Set<String> = []
        for application in try container.reader.applications() {
            guard let record = try container.storedManifest(for: application),
                // Said where it is asked for; here it means that nothing is known.
                let manifest = try? Manifest(json: Array(record.text.utf8))
            else { return nil }
            wanted.formUnion(manifest.packs.map(\.contentDigest.description))
        }
        return wanted
    }
}

/// What `gc` prints.
struct GarbageReport: Codable, CustomStringConvertible {
    var generations = 0
    var inUse = 0
    var leftovers = 0
    var downloads = 0

    mutating func add(_ removal: Removal) {
        generations += removal.generations
        inUse += removal.inUse
        leftovers += removal.leftovers
        downloads += removal.downloads
    }

    var description: String {
        var text =
            "removed \(generations) generations, \(downloads) downloads, \(leftovers) leftovers"
        if inUse > 0 { text += "; \(inUse) generations are being read" }
        return text
    }
}
