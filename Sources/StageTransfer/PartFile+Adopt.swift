public import StageModel
public import StageSystem
public import SystemPackage

extension PartFile {
    /// Takes over a complete file that another process received, in place of the bytes held here: moved
    /// where the file systems allow it, else copied.
    ///
    /// The file must be on disk, and is then gone or left as it is. A symbolic link, another user's file
    /// and one with a second name are not taken. The bytes are believed as little as others: the next
    /// download verifies them.
    ///
    /// - Returns: Whether there was such a file, of `size` bytes.
    public func adopt(
        _ name: FilePath.Component,
        in folder: Directory,
        size: ByteCount,
        url: String
    ) throws(TransferError) -> Bool {
        do throws(FileError) {
            guard let status = try folder.status(FilePath(name)), status.kind == .file,
                status.owner == UserIdentity.current.user, status.linkCount == 1,
                status.size == size.rawValue
            else { return false }
            let content = try begin(
                total: size.rawValue,
                validator: nil,
                url: url,
                isRecorded: true
            )
            do throws(FileError) {
                try move(name, from: folder)
            } catch {
                guard error.errno == .improperLink || error.errno == .notPermitted,
                    let file = try folder.file(reading: FilePath(name))
                else { throw error }
                try content.file.copyContent(of: file)
            }
            try reopen(length: size.rawValue)
            return true
        } catch {
            throw TransferError(error)
        }
    }
}
