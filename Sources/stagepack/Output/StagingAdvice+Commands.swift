import StageContainer
import StageEngine
import StageModel
import StageSystem
import StagingService
import SystemPackage

extension StagingAdvice {
    /// Returns the advice with a command that can be pasted and has the options of the run; `nil` for advice
    /// without a command.
    func command(for pack: PackID?, in source: HintSource) -> String? {
        switch self {
        case .freeSpace, .freeInodes, .raiseQuota, .prefetchFirst, .removeRecord, .restoreRecord,
            .repair, .showStatus, .releasePin, .checkContainer:
            containerCommand(for: pack, in: source)
        case .nameManifest where !source.namesPacks: CommandFailure.onlyApplication
        case .nameRoot: source.storedRoot.map { "pass --root \(CommandFailure.quoted($0))" }
        case .correctRegistration where source.namesRoot: "pass the file of the root with --root"
        case .correctApplication where source.namesApplication:
            "correct 'manifestURLs' or 'application' in the registration"
        case .decodeInProcess, .load, .listPacks, .listFiles, .nameFileInDirectory, .loadWholePack,
            .checkManifest, .nameManifestFile:
            contentCommand(for: pack, in: source)
        default: nil
        }
    }

    private func containerCommand(for pack: PackID?, in source: HintSource) -> String? {
        switch self {
        case .checkContainer: source.local("doctor").map { "run \($0)" }
        case .freeSpace: source.spaceCommand.map { "free some space" + $0 }
        case .freeInodes: source.spaceCommand.map { FileError.inodeAdvice + $0 }
        case .raiseQuota:
            source.local("status").map {
                "raise 'quota' in the registration, or remove packs: \($0) lists them"
            }
        case .prefetchFirst where source.namesPacks:
            source.staging("prefetch").map { "run \($0) first, or pass another --container" }
        case .removeRecord:
            source.staging("prefetch").map { "remove it, then run \($0)" }
        case .restoreRecord where source.namesPacks:
            source.staging("prefetch").map { "run \($0), which writes it again" }
        case .repair: source.staging("repair").map { "run \($0)" }
        case .showStatus:
            source.local("status").map { "run \($0) to see which packs have one" }
        case .releasePin:
            pack.flatMap { source.local("pin", "--release", $0.text) }.map {
                "release the pin first: run \($0)"
            }
        default: nil
        }
    }

    private func contentCommand(for pack: PackID?, in source: HintSource) -> String? {
        let load = pack.flatMap { source.staging("load", $0.text) }
        return switch self {
        case .decodeInProcess:
            (pack.map { source.staging("fetch", $0.text) } ?? source.staging("prefetch"))
                .map { "fetch it with \($0), or run it as another user" }
        case .load:
            load.map { "run \($0) to fetch it" }
                ?? pack.map {
                    "run \(HintSource.quoted(["load", $0.text])) with --app ID or --manifest URL to fetch it"
                }
        case .listPacks: source.staging("plan").map { "run \($0) to see all packs" }
        case .listFiles: load.map { "run \($0) to see what it has" }
        case .nameFileInDirectory: load.map { "name a file in it, or load the whole pack: \($0)" }
        case .loadWholePack: load.map { "load the whole pack: \($0)" }
        case .nameManifestFile:
            source.manifestFile.flatMap(ManifestFile.manifest(inDirectory:)).map {
                "name the manifest: \($0.forDisplay())"
            }
        case .checkManifest:
            source.manifestFile.map {
                "correct it, then run \(HintSource.quoted(["manifest", "lint", $0])) to check it"
            }
        default: nil
        }
    }
}

extension StagingFailure {
    /// The hint for a registration that cannot be used and that no package owns, by its folder; `nil` for other failures.
    var hintForRegistration: String? {
        guard case .registration(_, let file?) = self else { return nil }
        let folder = file.removingLastComponent()
        let folders = RegistrationFolders(environment: ProcessEnvironment.current)
        guard folder != RegistrationLocations.ofPackages, folders.folders.contains(folder) else {
            return nil
        }
        let other = folders.registration(besides: file)
        let correction = newName(of: file).map { "rename it to '\($0)'" } ?? "correct the file"
        return "\(correction), or remove it"
            + (other.map { ": then '\($0.string.escapedForDisplay)' applies" } ?? "")
    }

    /// Returns the name that a registration has to have; `nil` if it has it, cannot be read, or another file has that name.
    private func newName(of file: FilePath) -> String? {
        guard let found = try? RegistrationFolders.read(file, isInstalled: true).application,
            let name = FilePath.Component("\(found).json"), name != file.lastComponent,
            !FileStatus.exists(file.removingLastComponent().appending(name))
        else { return nil }
        return name.string
    }

    /// The pack that the failure concerns, if any.
    var pack: PackID? {
        switch self {
        case .engine(.container(let error), _) where error.pack != nil: error.pack
        case .engine(_, .pack(let id)), .refusal(_, .pack(let id)),
            .deadline(.pack(let id), _, _, _):
            id
        default: nil
        }
    }
}

extension StagingFailure {
    /// The pack that is not staged, or that no manifest has.
    var unknownPack: PackID? {
        switch self {
        case .engine(.unknownPack(let id), _), .engine(.container(.notStaged(let id)), _): id
        default: nil
        }
    }
}

extension ContainerError {
    /// The pack that the error concerns, if any.
    fileprivate var pack: PackID? {
        switch self {
        case .busy(let id), .notStaged(let id), .noPrevious(let id), .pinned(let id, _),
            .otherVersion(let id, _, _):
            id
        case .missing, .unknownFormat, .notAContainer, .damagedRecord, .file: nil
        }
    }
}
