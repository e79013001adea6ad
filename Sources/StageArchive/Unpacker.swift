public import Logging
public import StageModel
import StageSystem
import Synchronization
public import SystemPackage

/// Unpacks archives where they can do no harm: in a process, or on a thread, that is able to write
/// nowhere but beneath the destination.
///
/// Any number of requests may be under way at a time.
public final class Unpacker: Sendable {
    /// Where archives are decoded.
    public enum Mode: Hashable, Sendable {
        /// On a fresh thread of this process for each archive; not for root.
        ///
        /// The thread is confined, its process is not: code that a decoder was tricked into running
        /// could make other threads act for it. So a process of root, or one with capabilities, gets
        /// ``ArchiveError/notConfined(_:)``.
        case thread
        /// In a process for each archive, confined as a whole.
        ///
        /// `executable` is started with `arguments`, the first of which is its name, and has to call
        /// ``UnpackService/run(_:)``, which makes the processes.
        case process(executable: FilePath, arguments: [String])
    }

    private let launcher: DecoderLauncher?
    private let logger: Logger
    private let hasWarned = Atomic<Bool>(false)

    /// Creates an unpacker; the process that makes the others starts with the first
    /// request.
    public init(_ mode: Mode = .thread, logger: Logger) {
        launcher =
            switch mode {
            case .thread: nil
            case .process(let executable, let arguments):
                DecoderLauncher(executable: executable, arguments: arguments)
            }
        self.logger = logger
    }

    /// Unpacks an archive into its destination, and returns what it held.
    ///
    /// Nothing is waited for on the cooperative pool. What was written is not synchronized: the caller
    /// does that, once for all. After an error the destination holds whatever was written by then.
    ///
    /// `progress` is told how many bytes have been unpacked so far, about every MiB, on some other
    /// thread.
    ///
    /// - Throws: ``ArchiveError/cancelled`` when the task is cancelled; other cases when the archive
    ///   is damaged, holds what a pack may not hold, or cannot be written.
    public func unpack(
        _ request: UnpackRequest,
        progress: @escaping @Sendable (ByteCount) -> Void = { _ in }
    ) async throws(ArchiveError) -> UnpackReport {
        let report =
            if let launcher {
                try await unpack(request, with: launcher, progress)
            } else {
                try await unpackOnThread(request, progress)
            }
        warnOnce(of: report.confinement)
        return report
    }

    private func unpackOnThread(
        _ request: UnpackRequest,
        _ progress: @escaping @Sendable (ByteCount) -> Void
    ) async throws(ArchiveError) -> UnpackReport {
        let cancellation = Cancellation()
        let thread = DecoderThread<UnpackReport>(
            isCancelled: { cancellation.isRequested },
            progress: progress
        )
        return try await onThread {
            Result { () throws(ArchiveError) in
                try thread.run { (events) throws(ArchiveError) in
                    // Where the system does not allow it, the mode of each file is set instead.
                    _ = SystemThread.clearOwnMask()
                    return try request.unpackConfined(events, answeringOn: nil)
                }
            }
        } onCancel: {
            cancellation.request()
        }
    }

    private func unpack(
        _ request: UnpackRequest,
        with launcher: DecoderLauncher,
        _ progress: @escaping @Sendable (ByteCount) -> Void
    ) async throws(ArchiveError) -> UnpackReport {
        let exchange = DecoderExchange(
            ServiceRequest(
                task: .unpack(
                    destination: request.destination.path.string,
                    fileName: request.fileName,
                    request.limits
                ),
                format: request.format
            ),
            archive: request.archive,
            destination: request.destination,
            progress: progress
        )
        return try await onThread {
            Result { () throws(ArchiveError) in
                guard case .report(let report) = try exchange.run(with: launcher) else {
                    throw .fileSystem(FileError("receive from", "socket", .invalidArgument))
                }
                return report
            }
        } onCancel: {
            exchange.cancel()
        }
    }

    private func onThread(
        _ body: @escaping @Sendable () -> Result<UnpackReport, ArchiveError>,
        onCancel: @Sendable () -> Void
    ) async throws(ArchiveError) -> UnpackReport {
        let result = await withTaskCancellationHandler {
            await withBlockingThread { body() }
        } onCancel: {
            onCancel()
        }
        return try result.get()
    }

    private func warnOnce(of confinement: Confinement) {
        guard !confinement.isWhole, !hasWarned.exchange(true, ordering: .relaxed) else { return }
        logger.warning(
            "the kernel cannot confine the unpacking of archives",
            metadata: [
                "landlock.version": "\(confinement.version)",
                "seccomp": "\(confinement.filtersCalls)",
            ]
        )
    }
}

extension UnpackRequest {
    /// Unpacks the archive on the calling thread, which it confines to the destination for good.
    func unpackConfined(
        _ events: UnpackEvents,
        answeringOn channel: FileDescriptor?
    ) throws(ArchiveError) -> UnpackReport {
        let confinement = try Confinement.forDecoding(beneath: destination, answeringOn: channel)
        var report = try unpack(events)
        report.confinement = confinement
        return report
    }
}

extension Confinement {
    /// Whether files and system calls are restricted: what root asks for before it decodes.
    var isWhole: Bool { restrictsFiles && filtersCalls }

    /// Confines the calling thread to decoding, for good.
    ///
    /// - Throws: ``ArchiveError/notConfined(_:)`` where the thread is privileged and the kernel cannot
    ///   confine it.
    static func forDecoding(
        beneath directory: Directory?,
        answeringOn channel: FileDescriptor?
    ) throws(ArchiveError) -> Confinement {
        let isPrivileged = isPrivileged
        let confinement = try ArchiveError.wrapping { () throws(FileError) in
            try confineDecoder(beneath: directory, answeringOn: channel)
        }
        guard isPrivileged, !confinement.isWhole else { return confinement }
        throw .notConfined(confinement.restrictsFiles ? .callFilter : .landlock)
    }
}
