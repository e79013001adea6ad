package import Logging
package import StageModel
import StageSystem
import Synchronization
package import SystemPackage

/// Unpacks archives in a confined process or thread, which can write only below the destination.
///
/// Any number of requests may run at the same time.
package final class Unpacker: Sendable {
    /// The thread or process that decodes archives.
    package enum Mode: Hashable, Sendable {
        /// On a new thread of this process for each archive; not available to root.
        ///
        /// Only the thread is confined, not the process: an exploited decoder could make other threads act for it.
        /// Therefore a privileged process gets ``ArchiveError/notConfined(_:)``.
        case thread
        /// In a separate process for each archive, confined as a whole.
        ///
        /// Starts `executable` with `arguments`, the first of which is its name; the program must call
        /// ``UnpackService/run(_:)``, which forks the decoders.
        case process(executable: FilePath, arguments: [String])
    }

    private let launcher: DecoderLauncher?
    private let logger: Logger
    private let hasWarned = Atomic<Bool>(false)

    /// Creates an unpacker; the service process starts with the first request.
    package init(_ mode: Mode = .thread, logger: Logger) {
        launcher =
            switch mode {
            case .thread: nil
            case .process(let executable, let arguments):
                DecoderLauncher(executable: executable, arguments: arguments)
            }
        self.logger = logger
    }

    /// Unpacks an archive into its destination, and returns the totals.
    ///
    /// Does not block the cooperative pool. Does not sync the written files: the caller syncs once for all.
    /// After an error, the destination contains the files written so far.
    ///
    /// Calls `progress` with the bytes unpacked so far, about once a MiB, on another thread.
    ///
    /// - Throws: ``ArchiveError/cancelled`` when the task is cancelled; other cases if the archive is
    ///   damaged, contains entries that packs must not contain, or cannot be written.
    package func unpack(
        _ request: UnpackRequest,
        progress: @escaping @Sendable (ByteCount) -> Void = { _ in }
    ) async throws(ArchiveError) -> UnpackReport {
        let report =
            if let launcher {
                try await unpack(request, with: launcher, progress: progress)
            } else {
                try await unpackOnThread(request, progress: progress)
            }
        warnOnce(of: report.confinement)
        return report
    }

    private func unpackOnThread(
        _ request: UnpackRequest,
        progress: @escaping @Sendable (ByteCount) -> Void
    ) async throws(ArchiveError) -> UnpackReport {
        let cancellation = Cancellation()
        let thread = DecoderThread<UnpackReport>(
            isCancelled: { cancellation.isRequested },
            progress: progress
        )
        return try await onThread {
            Result { () throws(ArchiveError) in
                try thread.run { (events) throws(ArchiveError) in
                    // If the system does not allow it, each file's mode is set instead.
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
        progress: @escaping @Sendable (ByteCount) -> Void
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
                    throw .fileSystem(
                        FileError("receive from", path: "socket", errno: .invalidArgument)
                    )
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
    /// Unpacks the archive on the calling thread, which it confines to the destination permanently.
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
    /// Indicates whether both files and system calls are restricted, as root requires for decoding.
    var isWhole: Bool { restrictsFiles && filtersCalls }

    /// Confines the calling thread to decoding, permanently.
    ///
    /// - Throws: ``ArchiveError/notConfined(_:)`` if the thread is privileged and the kernel cannot confine
    ///   it.
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
