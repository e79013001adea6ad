public import StageModel
import StageSystem
public import SystemPackage

extension PartFile {
    /// Takes a complete file over that somebody else received, in place of what was held: moved where
    /// the file systems allow it, else copied.
    ///
    /// The file at `path` must be on disk, and is then gone or left as it is. Its bytes are believed
    /// as little as others: whoever downloads next verifies them.
    ///
    /// - Returns: Whether there was such a file, of `size` bytes.
    public func adopt(
        _ path: FilePath,
        size: ByteCount,
        url: String
    ) throws(TransferError) -> Bool {
        do throws(FileError) {
            guard let name = path.lastComponent,
                let folder = try Directory.openIfThere(path.removingLastComponent()),
                let status = try folder.status(FilePath(name)), status.kind == .file,
                status.size == size.rawValue
            else { return false }
            let content = try begin(
                total: size.rawValue,
                validator: nil,
                url: url,
                isRecorded: true
            )
            do throws(FileError) {
                // Somebody else's could be written on, and is not this process's to move.
                guard status.owner == UserIdentity.current.user else {
                    throw FileError("rename", path, .notPermitted)
                }
                try move(name, from: folder)
            } catch {
                guard error.errno == .improperLink || error.errno == .notPermitted else {
                    throw error
                }
                try content.file.copyContent(of: try File.open(readingRegular: path))
            }
            try reopen(length: size.rawValue)
            return true
        } catch {
            throw TransferError(error)
        }
    }
}

extension Directory {
    /// Opens the directory at `path`, or returns `nil` if there is none.
    fileprivate static func openIfThere(_ path: FilePath) throws(FileError) -> Directory? {
        do throws(FileError) {
            return try open(path)
        } catch {
            if error.errno == .noSuchFileOrDirectory { return nil }
            throw error
        }
    }
}
