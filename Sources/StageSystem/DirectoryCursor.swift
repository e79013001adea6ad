package import SystemPackage

/// Finds the parent directories of many paths below a root, and caches the last one: paths in tree order
/// mostly share their parent.
///
/// The directories must not be replaced while the cursor is in use.
package struct DirectoryCursor: ~Copyable {
    private let root: Directory
    private var parent: (path: Substring, directory: Directory)?

    /// Creates a cursor for paths below a directory.
    package init(_ root: Directory) {
        self.root = root
    }

    /// Returns the parent directory of `path` and the last component; `nil` if the parent does not exist.
    ///
    /// - Precondition: `path` is relative and has no empty component.
    package mutating func location(
        of path: String
    ) throws(FileError) -> (directory: Directory, name: FilePath)? {
        guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else {
            return (root, FilePath(path))
        }
        let above = path[..<slash]
        let name = FilePath(String(path[path.utf8.index(after: slash)...]))
        // Compares bytes: names that are canonically equivalent in Unicode are different files.
        if let parent, parent.path.utf8.elementsEqual(above.utf8) {
            return (parent.directory, name)
        }
        guard let directory = try root.directory(FilePath(String(above))) else { return nil }
        parent = (above, directory)
        return (directory, name)
    }

    /// Returns the parent directory of `path`, which must exist, and the last component.
    package mutating func existingLocation(
        of path: String
    ) throws(FileError) -> (directory: Directory, name: FilePath) {
        guard let location = try location(of: path) else {
            throw FileError(
                "open",
                path: root.path.pushing(FilePath(path)),
                errno: .noSuchFileOrDirectory
            )
        }
        return location
    }
}
