public import StageModel
public import StageSystem

/// Why a recipe was not made into a pack.
///
/// Sources are paths as the recipe writes them, relative to its root.
@nonexhaustive
public indirect enum PackagingError: Error, Equatable, Sendable {
    /// These selectors (each as its place, its member and its value) select nothing, or nothing that
    /// is not excluded.
    case nothingSelected([String])
    /// Two sources have one destination.
    case collision(path: ContentPath, first: String, second: String)
    /// A source has a name, a kind or a target that a pack may not hold.
    case notAllowed(source: String, ValueError)
    /// There is more than a manifest may say.
    case overLimit(ValueError)
    /// A source became another while it was packed.
    case changed(source: String)
    /// The file system refused.
    case file(FileError)
    /// The compressor refused, in its own words.
    case compressor(String)
    /// No delta set can be made with the version whose index has this digest, decompressed.
    case base(Digest, BaseFault)
    /// The caller gave up.
    case cancelled
}

/// The reason why no delta set can be made with a version.
public enum BaseFault: Equatable, Sendable {
    /// The older version is the newer one.
    case sameVersion
    /// The store does not have this bundle of the version, or not all of it.
    case missingBundle(Digest)
    /// No file of the two versions has the same name or content.
    case unrelated
}

extension BaseFault: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .sameVersion: "it is the version that the delta set would make"
        case .missingBundle(let digest): "its bundle 'b/\(digest)' is not in the store"
        case .unrelated: "no file has the name or the content of one of the newer version"
        }
    }
}

extension PackagingError: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .nothingSelected(let selectors):
            selectors.map { "\($0.forDisplay()) selects nothing" }.joined(separator: "; ")
        case .collision(let path, let first, let second):
            "'\(path)' has two sources: '\(first.forDisplay())' and '\(second.forDisplay())'"
        case .notAllowed(let source, let fault):
            "'\(source.forDisplay())' is not allowed in a pack: \(fault)"
        case .overLimit(let fault):
            fault.description
        case .changed(let source):
            "'\(source.forDisplay())' changed while it was packed"
        case .file(let error):
            error.description
        case .compressor(let words):
            "the archive cannot be written: \(words.forDisplay())"
        case .base(let digest, let fault):
            "the version with the index \(digest) is no base: \(fault)"
        case .cancelled:
            "packaging was cancelled"
        }
    }
}

extension PackagingError {
    /// Calls `body`, and wraps the error of a file system call.
    static func wrapping<Result: ~Copyable>(
        _ body: () throws(FileError) -> Result
    ) throws(PackagingError) -> Result {
        do {
            return try body()
        } catch {
            throw .file(error)
        }
    }
}
