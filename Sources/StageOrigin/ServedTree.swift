import StageModel
import StageSystem
import SystemPackage

/// Served directory with all its files and directories that are not hidden.
struct ServedTree: Sendable {
    let root: Directory

    /// File or directory at a path.
    enum Entry: Sendable {
        case file(SharedFile)
        case directory(Directory)
    }

    /// Opens the file or directory at `path`; returns `nil` if nothing is served there.
    func entry(at path: ServedPath) throws(FileError) -> Entry? {
        switch try root.entry(following: path.filePath) {
        case .file(let file): path.hasTrailingSlash ? nil : .file(SharedFile(file))
        case .directory(let directory): .directory(directory)
        case nil: nil
        }
    }

    /// Lists the directory at `path`, without entries that are not served or that this process cannot open.
    func index(of directory: Directory, at path: ServedPath) throws(FileError) -> IndexPage {
        var lines: [IndexPage.Line] = []
        for entry in try directory.entries() where ServedPath.isServed(entry.path.string) {
            // Resolved from the root, as a request would be: a link may lead up, but not out.
            let target =
                path.names.isEmpty ? entry.path : path.filePath.appending(entry.name)
            do throws(FileError) {
                if let line = try line(named: entry.path.string, at: target) { lines.append(line) }
            } catch {
                guard !error.isRefusedByLimit else { throw error }
            }
        }
        let title = path.names.isEmpty ? "/" : "/" + path.names.joined(separator: "/") + "/"
        return IndexPage(title: title, lines: lines)
    }

    private func line(
        named name: String,
        at path: FilePath
    ) throws(FileError) -> IndexPage.Line? {
        let identity: FileIdentity
        let isDirectory: Bool
        switch try root.entry(following: path) {
        case .file(let file):
            identity = try file.identity()
            isDirectory = false
        case .directory(let directory):
            identity = try directory.identity()
            isDirectory = true
        case nil:
            return nil
        }
        return IndexPage.Line(
            name: name,
            isDirectory: isDirectory,
            size: ByteCount(identity.size),
            modified: identity.modifiedDate
        )
    }
}

extension FileIdentity {
    /// Time of the last content change, in whole seconds.
    var modifiedDate: HTTPDate {
        HTTPDate(seconds: modified / 1_000_000_000 - (modified % 1_000_000_000 < 0 ? 1 : 0))
    }
}
