public import StageModel
public import StageSystem
public import SystemPackage

/// Why a container could not be used.
@nonexhaustive
public enum ContainerError: Error, Equatable, Sendable {
    /// There is no container at the path.
    case missing(FilePath)

    /// The container has a format that this program does not know.
    case unknownFormat(FilePath, found: Int, known: Int)

    /// A file that StagePack wrote into the container does not hold what it wrote.
    case damagedRecord(FilePath, detail: String)

    /// A pack that was to be removed is being read.
    case inUse(PackID, generation: String)

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
        case .damagedRecord(let path, let detail):
            "the record '\(path)' is damaged: \(detail)"
        case .inUse(let id, let generation):
            "generation '\(generation)' of pack '\(id)' is being read"
        case .file(let error):
            error.description
        }
    }
}

extension ContainerError {
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
