public import StageModel
public import StageSystem
public import SystemPackage

/// Somebody else who fetches archives: a daemon, whose transfers outlive this process.
public protocol ArchiveCourier: Sendable {
    /// Fetches an archive, and returns where it is; `nil` if the engine has to do it itself.
    ///
    /// What is returned is believed as little as what a server sends. Cancelling the task ends the
    /// waiting; the archive may go on arriving.
    ///
    /// - Throws: ``StageError`` if nobody can have the archive now.
    func fetch(
        _ order: ArchiveOrder,
        report: @escaping @Sendable (StagingEvent) -> Void
    ) async throws(StageError) -> ArchiveDelivery?
}

/// An archive that is to be fetched.
public struct ArchiveOrder: Hashable, Sendable {
    /// The pack that it is of.
    public var pack: PackID
    /// Where it is, the preferred URL first; none of them is of a file on this machine.
    public var urls: [String]
    /// Its exact size.
    public var size: ByteCount
    /// Its digest.
    public var digest: Digest
    /// Orders archives of an application: higher comes first.
    public var priority: Int
}

/// An archive that was fetched.
public struct ArchiveDelivery: Sendable {
    /// The directory that it is in.
    public var directory: Directory
    /// Its name there: a regular file of this user's with no other name.
    public var name: FilePath.Component
    /// The URL that it came from.
    public var url: String
    /// How many bytes were received for it.
    public var bytesReceived: ByteCount
    /// To be called when nothing more is to be done about the archive.
    ///
    /// Until then somebody who comes after a crash is told of it again.
    public var confirm: @Sendable () async -> Void

    /// Creates a delivery from its parts.
    public init(
        _ name: FilePath.Component,
        in directory: Directory,
        url: String,
        bytesReceived: ByteCount,
        confirm: @escaping @Sendable () async -> Void
    ) {
        self.directory = directory
        self.name = name
        self.url = url
        self.bytesReceived = bytesReceived
        self.confirm = confirm
    }
}
