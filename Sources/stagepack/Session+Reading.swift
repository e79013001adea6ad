import FoundationEssentials
import StageContainer
import StageModel
import StagePack
import StagingService
import SystemPackage

extension Session {
    /// The containers that a pack is looked for in: the one that the options name, or the user's and
    /// then the system's of the group.
    private var containersForReading: [FilePath] {
        if let container = target.container { return [container] }
        guard let group = target.registration?.group else { return [] }
        return ContainerLocations.forReading(group, environment: target.environment)
    }

    /// Where the pack is, or `nil` if it is not staged.
    func stagedPath(
        of id: PackID,
        in container: String? = nil
    ) throws(CommandFailure) -> String? {
        let containers = container.map { [FilePath($0)] } ?? containersForReading
        guard !containers.isEmpty || !target.manifests.isEmpty else {
            throw .usage("no container is named: pass --container DIR or --app ID")
        }
        do throws(PackStoreError) {
            let path = try PackStore(containers: containers).localURL(for: id)?.path
            return path.map { $0.hasSuffix("/") && $0.count > 1 ? String($0.dropLast()) : $0 }
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Where a file of a pack is that was fetched by itself, or `nil` if it is not here.
    func fetchedPath(
        of file: ContentPath,
        in id: PackID
    ) throws(CommandFailure) -> String? {
        do throws(PackStoreError) {
            let store = PackStore(containers: containersForReading)
            return try store.localURL(for: file.text, inPack: id)?.path
        } catch {
            throw CommandFailure(error)
        }
    }
}

extension CommandFailure {
    /// What it means that a container cannot be read.
    fileprivate init(_ error: PackStoreError) {
        if case .container(let error) = error {
            self.init(error)
        } else {
            self.init(
                status: .containerUnusable,
                message: error.description,
                hint: nil,
                retry: .never
            )
        }
    }

    /// A pack that is not staged, where nothing is to be fetched.
    static func notStaged(_ id: PackID) -> CommandFailure {
        CommandFailure(
            status: .notStaged,
            message: "pack '\(id)' is not staged",
            hint: StagingAdvice.load.text(after: nil, about: id),
            retry: .later
        )
    }
}
