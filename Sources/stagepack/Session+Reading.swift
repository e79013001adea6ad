import FoundationEssentials
import StageContainer
import StageControl
import StageModel
import StagePack
import StageSystem
import StagingService
import SystemPackage

extension Session {
    /// Returns the store of packs in the target's containers, or in `container`, that of a run, if no option
    /// names one.
    private func store(_ container: String? = nil) throws(CommandFailure) -> PackStore {
        var containers = target.containersForReading
        if containers.isEmpty, let container { containers = [FilePath(container)] }
        guard !containers.isEmpty || !target.manifests.isEmpty else { throw .noContainer }
        return PackStore(containers: containers)
    }

    /// Returns the path of the pack, or `nil` if it is not staged.
    func stagedPath(
        of id: PackID,
        in container: String? = nil
    ) throws(CommandFailure) -> String? {
        let store = try store(container)
        do throws(PackStoreError) {
            let path = try store.localURL(for: id)?.path
            return path.map { $0.hasSuffix("/") && $0.count > 1 ? String($0.dropLast()) : $0 }
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Returns the path of a file that was downloaded without its pack, or `nil` if it does not exist.
    func fetchedPath(
        of file: ContentPath,
        in id: PackID
    ) throws(CommandFailure) -> String? {
        let store = try store()
        do throws(PackStoreError) {
            return try store.localURL(for: file.text, inPack: id)?.path
        } catch {
            throw CommandFailure(error)
        }
    }

    /// Creates the report of a path below one of the containers.
    func report(of path: String, in pack: PackID) -> PathReport {
        PathReport(pack: pack, path: path, location: location(of: FilePath(path)))
    }

    /// Returns the owner of the container that contains a path, user or system; `nil` for a container at
    /// another path.
    func location(of path: FilePath) -> ContainerLocation? {
        ContainerLocations.location(of: path, environment: target.environment)
    }

    /// Fails if the options name nothing but a container, and it does not exist: no command could stage its packs.
    func checkNamedContainer() throws(CommandFailure) {
        guard let path = target.container, !HintSource.current.namesPacks else { return }
        if try view().isMissing(path) { throw CommandFailure(ContainerError.absence(at: path)) }
    }

    /// Opens the containers that readers search and that exist.
    func view() throws(CommandFailure) -> ContainerView {
        do throws(ContainerError) {
            return try ContainerView(opening: target.containersForReading)
        } catch {
            throw CommandFailure(error)
        }
    }
}

extension Session {
    /// Refuses to change a pack that is only in containers other than this user's, such as the system's.
    ///
    /// - Parameters:
    ///   - id: The pack.
    ///   - command: The command that changes it, for the hint.
    /// - Throws: ``CommandFailure`` that names the container with the pack, and the command for root.
    func checkOwnCopy(of id: PackID, for command: String) throws(CommandFailure) {
        // With an option that names a container, the command changes that container regardless of its owner.
        guard target.container == nil, let own = knownContainer else { return }
        let foreign: FilePath?
        let view = try view()
        do throws(ContainerError) {
            foreign = try view.container(of: id, insteadOf: own)
        } catch {
            throw CommandFailure(error)
        }
        guard let foreign else { return }
        throw .notOurs(
            id,
            in: foreign,
            location: location(of: foreign),
            hint: hints.local(command, id.text)
        )
    }
}

extension Session {
    /// Returns whether a job of this user is for a container that this session's commands change.
    func changesContainer(of job: StagingJob, at container: FilePath) -> Bool {
        if let path = job.container { return FilePath(path) == container }
        guard target.container == nil, knownContainer == container,
            let own = target.registration, let name = job.application
        else { return false }
        // Other variables lead to other folders of the user.
        let isElsewhere = ["HOME", "XDG_DATA_HOME"].contains { variable in
            guard let folder = job.environment?[variable] else { return false }
            return target.environment[variable].map { FilePath($0).absolute.string } != folder
        }
        guard !isElsewhere else { return false }
        if name == own.application.text { return true }
        // Another application of the group has the same container.
        let folders = RegistrationFolders(environment: target.environment)
        let other = try? folders.registration(of: ApplicationID(name)).value
        return other?.group == own.group
    }
}

extension ContainerView {
    /// Returns the container with the copy of a pack that readers use; `nil` if there is none, or if `own` has
    /// a link to a copy, too.
    fileprivate func container(
        of id: PackID,
        insteadOf own: FilePath
    ) throws(ContainerError) -> FilePath? {
        for (path, reader) in zip(containers, readers) where path == own {
            if try reader?.currentGeneration(of: id) != nil { return nil }
        }
        return try copies(of: id).first.map { containers[$0.container] }
    }
}

extension CommandFailure {
    /// Returns the failure for a pack that is only in a container which this user may not change.
    static func notOurs(
        _ id: PackID,
        in container: FilePath,
        location: ContainerLocation?,
        hint: String?
    ) -> CommandFailure {
        let holder = location.map { "the \($0.rawValue)'s container" } ?? "another container"
        return CommandFailure(
            status: .containerUnusable,
            message:
                "pack '\(id)': only \(holder) '\(container)' has it, which this user cannot change",
            hint: location == .system ? hint.map { "as root, run \($0)" } : nil,
            retryAdvice: .never
        )
    }
}

extension Session {
    /// The packs of the manifests that the containers have stored; `nil` if there is no manifest, or one cannot be read.
    fileprivate var offeredPacks: Set<PackID>? {
        var offered: Set<PackID>?
        for path in target.containersForReading {
            guard let reader = try? ContainerReader.open(path) else { continue }
            for record in (try? target.stored(reader)) ?? [] {
                guard let manifest = try? record.manifest() else { return nil }
                offered = (offered ?? []).union(manifest.packs.map(\.id))
            }
        }
        return offered
    }

    /// The packs that the containers have staged, or that their manifests offer.
    var knownPacks: Set<PackID> {
        var known: Set<PackID> = []
        for path in target.containersForReading {
            // The packs serve hints and filters, so a container that cannot be read is skipped.
            guard let reader = try? ContainerReader.open(path) else { continue }
            known.formUnion((try? reader.stagedPacks()) ?? [])
            for record in (try? target.stored(reader)) ?? [] {
                known.formUnion((try? record.manifest())?.packs.map(\.id) ?? [])
            }
        }
        return known
    }

    /// Returns the pack of the container, or of its manifests, with the most similar identifier; `nil` if a
    /// pack with this identifier exists, or if none is similar.
    func pack(similarTo id: PackID) -> PackID? {
        let known = knownPacks
        let name = id.text.mostSimilar(in: known.map(\.text).sorted())
        return name.flatMap { name in known.first { $0.text == name } }
    }
}

extension CommandFailure {
    /// Returns the failure with the hint "did you mean 'aurora'?" if the containers that the options name have a pack with a
    /// similar identifier.
    ///
    /// Otherwise, if no stored manifest offers the pack, the hint is to list the packs instead of loading this one.
    func askingForSimilarPack(_ source: SourceOptions) -> CommandFailure {
        guard let unknownPack, let session = try? Session(source) else { return self }
        var failure = self
        guard let similar = session.pack(similarTo: unknownPack) else {
            if status == .notStaged, session.offeredPacks?.contains(unknownPack) == false {
                let hints = HintSource(source)
                failure.hint = StagingAdvice.listPacks.text(
                    after: nil,
                    about: unknownPack,
                    source: hints
                )
            }
            return failure
        }
        let question = "did you mean '\(similar)'?"
        // The hint to load the pack is dropped, since the pack does not exist.
        let rest = status == .notStaged ? nil : hint
        failure.hint = rest.map { "\(question) \($0)" } ?? question
        return failure
    }

    /// Creates the failure for a container that cannot be read.
    fileprivate init(_ error: PackStoreError) {
        if case .container(let error) = error {
            self.init(error)
        } else {
            self.init(
                status: .containerUnusable,
                message: error.description,
                hint: nil,
                retryAdvice: .never
            )
        }
    }

    /// Creates the failure for a pack that is not staged, if the command may not download it.
    static func notStaged(_ id: PackID) -> CommandFailure {
        CommandFailure(
            status: .notStaged,
            message: "pack '\(id)' is not staged",
            hint: StagingAdvice.load.text(after: nil, about: id),
            retryAdvice: .later,
            unknownPack: id
        )
    }
}
