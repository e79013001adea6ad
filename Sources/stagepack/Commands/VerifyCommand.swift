import ArgumentParser
import StageContainer
import StageEngine
import StageModel
import StagePack
import StageSystem
import SystemPackage

struct VerifyCommand: ScopedSubcommand, ReportingSubcommand {
    static let configuration = CommandConfiguration(
        commandName: "verify",
        abstract: "Compare every byte of staged packs with what was staged.",
        discussion: """
            Of an application the copy of each pack is compared that 'path' names, the user's or the \
            system's. Without --app and --container, the packs of every application that is \
            registered are. Ends with status 3 if anything differs, and with 2 if a pack is not staged.
            """
    )

    @Argument(
        help: "The packs. Default: all staged packs.",
        completion: PackCompletion.kind,
        transform: PackArgument.parse
    )
    var packs: [PackID] = []

    @OptionGroup(title: "Source") var source: SourceOptions
    @OptionGroup var scope: ScopeOptions
    @Flag(help: "Print the result as JSON.") var json = false
    @OptionGroup(title: "Messages") var messageOptions: MessageOptions

    func perform() async throws(CommandFailure) -> ExitStatus {
        var scopes = try ContainerScopes(source)
        if !packs.isEmpty { try scopes.checkForApplications() }
        var reports: [VerifyReport] = []
        for scope in scopes.scopes {
            do throws(CommandFailure) {
                let view = try scopes.view(of: scope)
                reports += try await VerifyReport.make(of: packs, in: scope, view: view)
            } catch {
                try scopes.record(error)
            }
        }
        for id in packs where !reports.contains(where: { $0.pack == id }) {
            try scopes.checkForFailures()
            throw .notStaged(id)
        }
        scopes.noteNoApplication(asJSON: json)
        let isShort = messageOptions.quiet && !json
        let shown = isShort ? reports.filter { !$0.differences.isEmpty } : reports
        return scopes.conclude(
            Listing(elements: shown, name: "packs"),
            status: reports.contains { !$0.differences.isEmpty } ? .findings : .success,
            asJSON: json
        )
    }
}

/// Output of `verify` for one pack.
struct VerifyReport: Codable, CustomStringConvertible {
    struct Difference: Codable {
        var kind: String
        var path: String
        /// The permission bits in octal digits; `nil` unless they alone differ.
        var mode: String?
        /// The permission bits with which the entry was staged; `nil` unless they alone differ.
        var expectedMode: String?

        /// The difference, as a fragment without the path.
        fileprivate var finding: String {
            guard let mode, let expectedMode else { return kind }
            return "mode \(mode), expected \(expectedMode)"
        }
    }

    var pack: PackID
    var differences: [Difference]
    /// The container of the copy; `nil` in the output of 'repair', which names one container for all packs.
    var container: String?
    /// The owner of the container, user or system; `nil` for a container at another path.
    var location: ContainerLocation?

    var description: String {
        let name = pack.text + (location.map { " (\($0.rawValue))" } ?? "")
        guard !differences.isEmpty else { return "\(name): as it was staged" }
        return differences.map { "\(name): \($0.finding): \($0.path.forDisplay())" }
            .joined(separator: "\n")
    }

    /// Verifies the copies that readers use, of all staged packs if none is named; skips packs that are not
    /// staged.
    static func make(
        of packs: [PackID],
        in scope: ContainerScope,
        view: ContainerView
    ) async throws(CommandFailure) -> [VerifyReport] {
        var reports: [VerifyReport] = []
        for (id, position) in try positions(of: packs, view) {
            let path = view.containers[position]
            guard let container = try open(path),
                let differences = try await compare(id, in: container)
            else { continue }
            var report = VerifyReport(pack: id, differences: differences.map(Difference.init))
            report.container = path.string
            report.location = scope.location(of: path)
            reports.append(report)
        }
        for (path, reader) in zip(view.containers, view.readers) {
            guard let reader else { continue }
            for var report in try ofCopies(packs, in: reader)
            where !reports.contains(where: { $0.pack == report.pack }) {
                report.container = path.string
                report.location = scope.location(of: path)
                reports.append(report)
            }
        }
        return reports
    }

    /// Returns the packs that have a directory instead of the link, as in a copy of a container that followed links.
    private static func ofCopies(
        _ packs: [PackID],
        in reader: ContainerReader
    ) throws(CommandFailure) -> [VerifyReport] {
        do throws(ContainerError) {
            let copied = try reader.copiedPacks()
            return copied.filter { packs.isEmpty || packs.contains($0) }
                .map { id in
                    let path = "'packs/\(id)' of the container: is not a link"
                    return VerifyReport(
                        pack: id,
                        differences: [Difference(kind: "changed", path: path)]
                    )
                }
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Returns the staged packs, with the positions of the containers with the copies that readers use.
    private static func positions(
        of packs: [PackID],
        _ view: ContainerView
    ) throws(CommandFailure) -> [(PackID, Int)] {
        do throws(ContainerError) {
            let ids = packs.isEmpty ? try view.stagedPacks().sorted() : packs
            var positions: [(PackID, Int)] = []
            for id in ids {
                let used = try view.copies(of: id).first?.container
                // A copy whose files are missing is a difference, too.
                let linked = used == nil ? try view.positionOfLink(to: id) : nil
                if let position = used ?? linked { positions.append((id, position)) }
            }
            return positions
        } catch {
            throw CommandFailure(error)
        }
    }

    private static func open(_ path: FilePath) throws(CommandFailure) -> Container? {
        do throws(ContainerError) {
            return try Container.open(path)
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Verifies packs of one container, all staged ones if none is named.
    static func make(
        of packs: [PackID],
        in container: Container
    ) async throws(CommandFailure) -> [VerifyReport] {
        var reports = try ofCopies(packs, in: container.reader)
        let copied = Set(reports.map(\.pack))
        let ids = packs.isEmpty ? try stagedPacks(of: container) : packs
        for id in ids where !copied.contains(id) {
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
            case .mode: "mode"
            }
        guard case .mode(_, let found, let expected) = difference else { return }
        mode = String(found, radix: 8)
        expectedMode = String(expected, radix: 8)
    }
}
