package import StageModel
package import StageSystem
package import SystemPackage

/// The reason why a pack could not be created from a recipe.
///
/// Sources are paths as written in the recipe, relative to its root.
@nonexhaustive
package indirect enum PackagingError: Error, Equatable, Sendable {
    /// These selectors (each with its position, member and value) select no files, or only excluded ones.
    case nothingSelected([String])
    /// Two sources have the same destination.
    case collision(path: ContentPath, first: String, second: String)
    /// These sources have names, types or link targets that packs must not contain.
    case notAllowed([RefusedSource])
    /// The pack exceeds a limit of manifests.
    case overLimit(ValueError)
    /// A source changed while it was packed.
    case changed(source: String)
    /// A file system call failed.
    case file(FileError)
    /// The compressor failed, with this message.
    case compressor(String)
    /// No delta set can be created from the version whose decompressed index has this digest.
    case base(Digest, BaseFault)
    /// The version is complete and has this index, but its smaller updates from older versions cannot be written.
    case incompleteUpdates(index: FilePath, FileError)
    /// The caller cancelled.
    case cancelled
}

/// A source that packs must not contain.
package struct RefusedSource: Equatable, Sendable {
    /// The path as written in the recipe.
    package var source: String
    /// The rule that its name, type or link target violates.
    package var fault: ValueError

    /// Creates a refused source from its parts.
    package init(source: String, fault: ValueError) {
        (self.source, self.fault) = (source, fault)
    }
}

/// The reason why a version cannot be the base of a delta set.
package enum BaseFault: Equatable, Sendable {
    /// The base is the new version itself.
    case sameVersion
    /// The store lacks this bundle of the version, or part of it.
    case missingBundle(Digest)
    /// The two versions share no file name or content.
    case unrelated
}

extension BaseFault: CustomStringConvertible {
    /// A lower-case sentence fragment for people.
    package var description: String {
        switch self {
        case .sameVersion: "it is the version that the delta set would make"
        case .missingBundle(let digest): "its bundle 'b/\(digest)' is not in the store"
        case .unrelated: "no file has the name or the content of one of the newer version"
        }
    }
}

extension PackagingError: CustomStringConvertible {
    /// A lower-case sentence fragment for people.
    package var description: String {
        switch self {
        case .nothingSelected(let selectors):
            selectors.map { "\($0.forDisplay()) selects nothing" }.joined(separator: "; ")
        case .collision(let path, let first, let second):
            "'\(path)' has two sources: '\(first.forDisplay())' and '\(second.forDisplay())'"
        case .notAllowed(let refused):
            Self.text(ofRefused: refused)
        case .overLimit(let fault):
            fault.description
        case .changed(let source):
            "'\(source.forDisplay())' changed while it was packed"
        case .file(let error):
            error.description
        case .compressor(let words):
            "the archive cannot be written: \(words.forDisplay())"
        case .base(let digest, let fault):
            "the version with the index \(digest) cannot be a base: \(fault)"
        case .incompleteUpdates(let index, let error):
            "the version is complete, with the index '\(index.string.forDisplay())', but updates to it were not made "
                + "smaller: \(error)"
        case .cancelled:
            "packaging was cancelled"
        }
    }

    /// The number of refused sources that a message names.
    private static let shownSources = 50

    private static func text(ofRefused refused: [RefusedSource]) -> String {
        if refused.count == 1, let only = refused.first {
            return "'\(only.source.forDisplay())' is not allowed in a pack: \(only.fault)"
        }
        var names = refused.prefix(shownSources).map { refused in
            "'\(refused.source.forDisplay())', expected \(refused.fault.expected)"
        }
        let rest = refused.count - names.count
        if rest > 0 { names.append("and \(rest.quantity(of: "other"))") }
        return "\(refused.count.quantity(of: "source")) are not allowed in a pack: "
            + names.joined(separator: "; ")
    }
}

extension PackagingError {
    /// Calls `body`, and wraps its ``FileError``.
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
