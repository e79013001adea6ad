public import StageModel
public import StageSystem
public import SystemPackage

/// Why a container could not be used.
@nonexhaustive
public indirect enum ContainerError: Error, Equatable, Sendable {
    /// There is no container at the path.
    case missing(FilePath)

    /// The container has a format that this program does not know.
    case unknownFormat(FilePath, found: Int, known: Int)

    /// The directory has files of others, and was no container so far.
    case notAContainer(FilePath, found: FilePath.Component)

    /// A file that StagePack wrote into the container does not hold what it wrote.
    case damagedRecord(FilePath, detail: String)

    /// Another process works on the pack.
    case busy(PackID)

    /// The pack is not staged, and was to be kept or replaced.
    case notStaged(PackID)

    /// There is no generation that a pack could be rolled back to.
    case noPrevious(PackID)

    /// The pack is pinned to the version that is staged.
    case pinned(PackID, version: Int)

    /// Another version of the pack is staged than the one that was to be kept.
    case otherVersion(PackID, expected: Int, staged: Int)

    /// The file system refused.
    case file(FileError)
}

extension ContainerError: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .missing(let path):
            "there is no container at '\(path)'"
        case .unknownFormat(let path, let found, let known):
            "the container '\(path)' has format \(found), expected \(known)"
        case .notAContainer(let path, let found):
            "'\(path)' is no container and not empty: it has '\(found)'"
        case .damagedRecord(let path, let detail):
            "the record '\(path)' is damaged: \(detail)"
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
            error.description
        }
    }
}

extension ContainerError {
    /// Whether a full file system is the reason: it may pass.
    public var isOutOfSpace: Bool {
        if case .file(let error) = self { error.isOutOfSpace } else { false }
    }

    /// Returns what `body` returns, its failure as a case of this type.
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
