public import StageContainer
import StageDigest
public import StageModel
public import StageSystem
import StageTransfer
public import SystemPackage

/// A file that an application's extension requests by URL: it is not a pack, and only its size is known.
public struct FileTransfer: Hashable, Sendable {
    /// The URL: https, or http to this machine.
    public var url: String
    /// The exact size, in bytes; the transfer fails if the file has another size.
    public var size: ByteCount
    /// Header fields for the server, one line each.
    ///
    /// They are not sent to other servers after a redirect.
    public var fields: [String]
    /// URLs whose origins receive the user's credentials, and may be on this machine.
    ///
    /// A request to any other origin has no credentials, and fails if the host is this machine: an extension cannot reach
    /// local services through StagePack.
    public var trustedURLs: [String]
    /// Orders transfers that wait for a connection: higher comes first.
    public var priority: Int

    /// Creates a transfer from its parts.
    public init(
        url: String,
        size: ByteCount,
        fields: [String] = [],
        trustedURLs: [String],
        priority: Int = 0
    ) {
        self.url = url
        self.size = size
        self.fields = fields
        self.trustedURLs = trustedURLs
        self.priority = priority
    }
}

extension Stager {
    /// Downloads a file into a directory.
    ///
    /// The container holds the partial file until the download is complete. A later run resumes it if the
    /// server proves that the content is the same.
    ///
    /// - Parameters:
    ///   - transfer: The file.
    ///   - container: The container that holds the partial file.
    ///   - directory: The destination, on the container's file system.
    ///   - name: The name of the file in `directory`.
    ///   - report: Receives events of the download.
    /// - Returns: The path of the complete file.
    /// - Throws: ``StageError/transfer(_:)``, ``StageError/container(_:)``, ``StageError/cancelled``.
    public func fetch(
        _ transfer: FileTransfer,
        keepingIn container: Container,
        to directory: Directory,
        as name: FilePath.Component,
        report: @escaping @Sendable (StagingEvent) -> Void = { _ in }
    ) async throws(StageError) -> FilePath {
        var request = DownloadRequest(mirrors: [transfer.url], size: transfer.size) { _ in
            // The engine has checked the size; the digest is unknown.
            nil
        } report: { event in
            if let event = StagingEvent(event) { report(event) }
        }
        request.expectedKind = .anything
        request.trustedOrigins = TrustedOrigins(of: transfer.trustedURLs)
        request.priority = transfer.priority
        request.fields = transfer.fields
        let key = ContainerLayout.downloadName(
            ofFile: Digest(of: Array("\(transfer.size.rawValue) \(transfer.url)".utf8))
        )
        let lock = try await container.downloadLock(key, report: report)
        defer { lock.end() }
        let part = try await download(request, as: key, in: container).part
        try StageError.wrapping { () throws(TransferError) in
            do throws(FileError) {
                try part.synchronize()
                try container.downloads.rename(part.fileName, to: name, in: directory)
            } catch {
                throw .storage(error)
            }
            try part.remove()
        }
        return directory.path.appending(name)
    }

    /// Downloads into a partial file of a container, from the allowed domains only.
    ///
    /// The caller holds the download lock, and passes `digestedSize` if the request compares the content with a
    /// known digest.
    func download(
        _ request: DownloadRequest,
        as name: FilePath.Component,
        in container: Container,
        digestedSize: ByteCount? = nil
    ) async throws(StageError) -> (part: PartialFile, receipt: DownloadReceipt) {
        var request = request
        request.allowedDomains = options.allowedDomains.map(AllowedDomains.init)
        do throws(TransferError) {
            let part = try PartialFile.open(
                name,
                in: container.downloads,
                digestedSize: digestedSize
            )
            return (part, try await engine.download(request, to: part))
        } catch {
            throw error.stageError
        }
    }
}
