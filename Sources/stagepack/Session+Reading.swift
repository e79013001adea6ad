import FoundationEssentials
import StageContainer
import StageModel
import StagePack
import SystemPackage

extension Session {
    /// The containers that a pack is looked for in: the one that the options name, or the user's and
    /// then the system's of the group.
    private var containersForReading: [FilePath] {
        if let container = source.container { return [container] }
        guard let group = registration?.group else { return [] }
        return ContainerLocations.forReading(group, environment: environment)
    }

    /// Where the pack is, or `nil` if it is not staged.
    func stagedPath(
        of id: PackID,
        in container: String? = nil
    ) throws(CommandFailure) -> String? {
        let containers = container.map { [FilePath($0)] } ?? containersForReading
        guard !containers.isEmpty || !source.manifest.isEmpty else {
            throw .usage("no container is named: pass --container DIR or --app ID")
        }
        do throws(PackStoreError) {
            let path = try PackStore(containers: containers).localURL(for: id)?.path
            return path.map { $0.hasSuffix("/") && $0.count > 1 ? String($0.dropLast()) : $0 }
        } catch {
            if case .container(let error) = error { throw CommandFailure(error) }
            throw CommandFailure(
                status: .containerUnusable,
                message: error.description,
                hint: nil,
                retry: .never
            )
        }
    }
}

extension CommandFailure {
    /// A pack that is not staged, where nothing is to be fetched.
    static func notStaged(_ id: PackID) -> CommandFailure {
        CommandFailure(
            status: .notStaged,
            message: "pack '\(id)' is not staged",
            hint: "run 'stagepack load \(id)' to fetch it",
            retry: .later
        )
    }
}
