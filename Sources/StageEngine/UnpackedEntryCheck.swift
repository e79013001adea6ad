import StageArchive
import StageModel
import StageSystem
import SystemPackage

/// A check of the entries that unpacking an archive left on disk, by the rules for packs.
///
/// The process that unpacks checks them, too, but it is not trusted: an archive may compromise it, and then it can
/// create any names, and links to any targets.
struct UnpackedEntryCheck {
    private let isEnabled: Bool
    private var links = ContentLinks()
    private var fault: ArchiveError?

    /// A check that accepts all entries.
    static let none = UnpackedEntryCheck(isEnabled: false)

    /// Creates a check without entries.
    init() { isEnabled = true }

    private init(isEnabled: Bool) { self.isEnabled = isEnabled }

    /// Returns whether a pack may contain an entry of this name and kind; `false` for all entries after a fault.
    ///
    /// Bounds the depth of the tree, since paths have a maximum number of components.
    mutating func accepts(_ entry: DirectoryEntry, at path: String) -> Bool {
        guard isEnabled else { return true }
        guard fault == nil else { return false }
        guard String(validating: entry.path) != nil else {
            note(ValueError(expected: "a path in UTF-8", text: path), at: path)
            return false
        }
        do throws(ValueError) {
            _ = try ContentPath(path)
            guard entry.kind != .other else {
                throw ValueError(
                    expected: "a file, a directory or a link",
                    found: "a device, a fifo or a socket"
                )
            }
        } catch {
            note(error, at: path)
        }
        return fault == nil
    }

    /// Adds a link at an accepted path.
    mutating func addLink(_ path: String, to target: [UInt8]) {
        guard isEnabled else { return }
        do throws(ValueError) {
            guard let text = String(validating: target, as: UTF8.self) else {
                let text = String(decoding: target, as: UTF8.self)
                throw ValueError(expected: "a target in UTF-8", text: text)
            }
            let path = try ContentPath(path)
            links.add(path, to: try LinkTarget(text, of: path))
        } catch {
            note(error, at: path)
        }
    }

    /// Adds the mode of a file at an accepted path.
    mutating func add(mode: UInt32, of path: String) {
        guard isEnabled, mode & 0o7000 != 0 else { return }
        let found = "mode 0\(String(mode, radix: 8))"
        note(ValueError(expected: "no set-id or sticky bits", found: found), at: path)
    }

    /// Ends the check.
    ///
    /// - Throws: ``ArchiveError/notAllowed(entry:_:)`` for an entry that packs must not contain.
    func finish() throws(ArchiveError) {
        if let fault { throw fault }
        if let (path, fault) = links.firstFault() { throw .notAllowed(entry: path, fault) }
    }

    private mutating func note(_ error: ValueError, at path: String) {
        if fault == nil { fault = .notAllowed(entry: path, error) }
    }
}
