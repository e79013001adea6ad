import FoundationEssentials
import StageContainer
import StageModel
import StagePack
import StagingService
import SystemPackage

extension Session {
    /// The containers that a pack is looked for in; `container` is that of a run, where no option names one.
    private func store(_ container: String? = nil) throws(CommandFailure) -> PackStore {
        var containers = target.containersForReading
        if containers.isEmpty, let container { containers = [FilePath(container)] }
        guard !containers.isEmpty || !target.manifests.isEmpty else { throw .noContainer }
        return PackStore(containers: containers)
    }

    /// Where the pack is, or `nil` if it is not staged.
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

    /// Where a file of a pack is that was fetched by itself, or `nil` if it is not here.
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

    /// The report of a path below one of the containers.
    func report(of path: String, in pack: PackID) -> PathReport {
        PathReport(pack: pack, path: path, location: location(of: FilePath(path)))
    }

    /// Returns whose container a path names, or is below; `nil` for one in another place.
    func location(of path: FilePath) -> ContainerLocation? {
        ContainerLocations.location(of: path, environment: target.environment)
    }

    /// The containers that readers look in, open as far as they are there.
    func view() throws(CommandFailure) -> ContainerView {
        do throws(ContainerError) {
            return try ContainerView(opening: target.containersForReading)
        } catch {
            throw CommandFailure(error)
        }
    }
}

extension Session {
    /// Returns the pack of the container, or of its manifests, with the most similar identifier; `nil` if there is such a
    /// pack, or none is similar.
    func pack(similarTo id: PackID) -> PackID? {
        var known: Set<PackID> = []
        for path in target.containersForReading {
            // A hint is not worth a failure of its own.
            guard let reader = try? ContainerReader.open(path) else { continue }
            known.formUnion((try? reader.stagedPacks()) ?? [])
            for record in (try? target.stored(reader)) ?? [] {
                known.formUnion((try? record.manifest())?.packs.map(\.id) ?? [])
            }
        }
        let name = id.text.mostSimilar(in: known.map(\.text).sorted())
        return name.flatMap { name in known.first { $0.text == name } }
    }
}

extension CommandFailure {
    /// Returns the failure with a question in its hint where the pack that it is about has a similar one in the
    /// containers of the options.
    func askingForSimilarPack(_ source: SourceOptions) -> CommandFailure {
        guard let unknownPack, let session = try? Session(source),
            let similar = session.pack(similarTo: unknownPack)
        else { return self }
        var failure = self
        let question = "did you mean '\(similar)'?"
        // To fetch a pack that does not exist is no advice.
        let rest = status == .notStaged ? nil : hint
        failure.hint = rest.map { "\(question) \($0)" } ?? question
        return failure
    }

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
            retry: .later,
            unknownPack: id
        )
    }
}
