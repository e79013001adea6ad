public import SystemPackage

/// Reaches many names below a directory, and keeps the one that holds the last name open: names in the
/// order of a tree mostly need it again.
///
/// Nothing may put another directory in the place of one that the cursor has been in.
public struct DirectoryCursor: ~Copyable {
    private let root: Directory
    private var parent: (path: Substring, directory: Directory)?

    /// Creates a cursor for what is below a directory.
    public init(_ root: Directory) {
        self.root = root
    }

    /// Returns the directory that holds what `path` names, and its name in there; `nil` if there is no
    /// such directory.
    ///
    /// - Precondition: `path` is relative, and the text of a path of a pack: it has no empty component.
    public mutating func place(
        of path: String
    ) throws(FileError) -> (directory: Directory, name: FilePath)? {
        guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else {
            return (root, FilePath(path))
        }
        let above = path[..<slash]
        let name = FilePath(String(path[path.utf8.index(after: slash)...]))
        // By their bytes: two names that Unicode takes for one are two for the file system.
        if let parent, parent.path.utf8.elementsEqual(above.utf8) {
            return (parent.directory, name)
        }
        guard let directory = try root.directory(FilePath(String(above))) else { return nil }
        parent = (above, directory)
        return (directory, name)
    }

    /// Returns the directory that holds what `path` names, which exists, and its name in there.
    public mutating func existingPlace(
        of path: String
    ) throws(FileError) -> (directory: Directory, name: FilePath) {
        guard let place = try place(of: path) else {
            throw FileError("open", root.path.pushing(FilePath(path)), .noSuchFileOrDirectory)
        }
        return place
    }
}
