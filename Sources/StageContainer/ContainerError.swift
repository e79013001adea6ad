public import StageModel
public import StageSystem
public import SystemPackage

/// Errors of container operations.
@nonexhaustive
public indirect enum ContainerError: Error, Equatable, Sendable {
    /// No container exists at the path.
    case missing(FilePath)

    /// The container has a format that this version does not support.
    case unknownFormat(FilePath, found: Int, known: Int)

    /// The directory is not a container and contains other files.
    case notAContainer(FilePath, found: FilePath.Component)

    /// The content of a record that StagePack wrote is invalid.
    case damagedRecord(FilePath, detail: String)

    /// Another process works on the pack.
    case busy(PackID)

    /// The pack to pin or roll back is not staged.
    case notStaged(PackID)

    /// The pack has no generation to roll back to.
    case noPrevious(PackID)

    /// The pack is pinned to the staged version.
    case pinned(PackID, version: Int)

    /// Another version than the expected one is staged.
    case otherVersion(PackID, expected: Int, staged: Int)

    /// A file operation failed.
    case file(FileError)
}

extension ContainerError: CustomStringConvertible {
    /// The error, as a readable sentence fragment.
    public var description: String {
        switch self {
        case .missing(let path):
            "there is no container at '\(path.string.escapedForDisplay)'"
        case .unknownFormat(let path, let found, let known):
            "the container '\(path.string.escapedForDisplay)' has format \(found), expected \(known)"
        case .notAContainer(let path, let found):
            "'\(path.string.escapedForDisplay)' is not a container and not empty: "
                + "it has '\(found.string.forDisplay())'"
        case .damagedRecord(let path, let detail):
            "the record '\(path.string.escapedForDisplay)' is damaged: \(detail.escapedForDisplay)"
        case .busy(let id):
            "another process works on pack '\(id)'"
        case .notStaged(let id):
            "pack '\(id)' is not staged"
        case .noPrevious(let id):
            "pack '\(id)' has no previous generation"
        case .pinned(let id, let version):
            "pack '\(id)' is pinned to version \(version)"
        case .otherVersion(let id, let expected, let staged):
            "pack '\(id)': expected version \(expected), version \(staged) is staged"
        case .file(let error):
            error.description.escapedForDisplay
        }
    }
}

extension ContainerError {
    /// Returns the error for a directory that is not a container: it does not exist, or its record alone is missing, as after
    /// an incomplete copy.
    package static func absence(at path: FilePath) -> ContainerError {
        let record = path.appending(ContainerLayout.record)
        guard !FileStatus.exists(record), FileStatus.exists(path.appending(ContainerLayout.packs))
        else { return .missing(path) }
        return .damagedRecord(record, detail: "it does not exist")
    }

    /// `true` if the cause is a full file system, so that a retry may succeed.
    public var isOutOfSpace: Bool {
        if case .file(let error) = self { error.isOutOfSpace } else { false }
    }

    /// Returns the result of `body`, or throws its error as a case of this type.
    static func wrapping<Result>(
        _ body: () throws(FileError) -> Result
    ) throws(ContainerError) -> Result {
        do throws(FileError) {
            return try body()
        } catch {
            throw .file(error)
        }
    }
}
