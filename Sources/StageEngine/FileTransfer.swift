public import StageContainer
import StageDigest
public import StageModel
public import StageSystem
import StageTransfer
public import SystemPackage

/// A file that an application's extension asks for by its URL: no pack, so known by its size alone.
public struct FileTransfer: Hashable, Sendable {
    /// The URL: https, or http of this machine.
    public var url: String
    /// The exact size; a file of another one is an error.
    public var size: ByteCount
    /// Header fields for the server, each as one line; other servers that it redirects to do not get
    /// them.
    public var fields: [String]
    /// URLs of the origins that are asked with the user's credentials, and that may be on this machine: an
    /// extension may ask for what its host may ask for there and nowhere else.
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
    /// Fetches a file into a directory.
    ///
    /// What was received is kept in the container until the file is complete, so that a later run goes
    /// on there, if the server proves that it is the same content.
    ///
    /// - Parameters:
    ///   - transfer: The file.
    ///   - container: Where what has arrived so far is kept.
    ///   - directory: Gets the file, on the container's file system.
    ///   - name: The name it gets.
    ///   - report: Told what happens.
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
            // The engine has counted the bytes, and there is nothing else to know the file by.
            true
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
                try container.downloads.file(reading: FilePath(part.fileName))?.synchronize()
                try container.downloads.rename(part.fileName, to: name, in: directory)
            } catch {
                throw .storage(error)
            }
            try part.remove()
        }
        return directory.path.appending(name)
    }

    /// Downloads into a part file of a container, whose lock the caller holds, from the domains that are
    /// allowed.
    func download(
        _ request: DownloadRequest,
        as name: FilePath.Component,
        in container: Container
    ) async throws(StageError) -> (part: PartialFile, receipt: DownloadReceipt) {
        var request = request
        request.allowedDomains = options.allowedDomains.map(AllowedDomains.init)
        do throws(TransferError) {
            let part = try PartialFile.open(name, in: container.downloads)
            return (part, try await engine.download(request, to: part))
        } catch {
            throw error.stageError
        }
    }
}
