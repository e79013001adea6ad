public import Logging
public import StageModel
import StageSystem
import Synchronization
public import SystemPackage

/// Unpacks archives where they can do no harm: on a thread or in a process that is able to write
/// nowhere but beneath the destination.
///
/// Any number of requests may be under way at a time.
public final class Unpacker: Sendable {
    /// Where archives are decoded.
    public enum Mode: Hashable, Sendable {
        /// On a fresh thread of this process for each archive.
        ///
        /// The thread is confined, its process is not: code that a decoder was tricked into running
        /// could make other threads act for it.
        case thread
        /// In a process that serves one archive after the other, its threads confined for each.
        ///
        /// `executable` is started with `arguments`, the first of which is its name, and has to call
        /// ``UnpackService/run(_:)``. One process runs for each request that is under way, and is
        /// kept for the next one.
        case process(executable: FilePath, arguments: [String])
    }

    private let mode: Mode
    private let logger: Logger
    private let services = ServicePool()
    private let hasWarned = Atomic<Bool>(false)

    /// Creates an unpacker; processes start with the first request.
    public init(_ mode: Mode = .thread, logger: Logger) {
        self.mode = mode
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
            switch mode {
            case .thread:
                try await unpackOnThread(request, progress)
            case .process(let executable, let arguments):
                try await unpackInProcess(request, progress, executable, arguments)
            }
        warnOnce(of: report.confinement)
        return report
    }

    private func unpackOnThread(
        _ request: UnpackRequest,
        _ progress: @escaping @Sendable (ByteCount) -> Void
    ) async throws(ArchiveError) -> UnpackReport {
        let cancellation = Cancellation()
        return try await onThread(named: "stage-unpack") {
            let events = UnpackEvents(progress: progress, isCancelled: { cancellation.isRequested })
            return Result { () throws(ArchiveError) in try request.unpackConfined(events) }
        } onCancel: {
            cancellation.request()
        }
    }

    private func unpackInProcess(
        _ request: UnpackRequest,
        _ progress: @escaping @Sendable (ByteCount) -> Void,
        _ executable: FilePath,
        _ arguments: [String]
    ) async throws(ArchiveError) -> UnpackReport {
        let exchange = ServiceExchange(request, progress)
        return try await onThread(named: "stage-exchange") { [services] in
            Result { () throws(ArchiveError) in
                try exchange.run(in: services, executable, arguments)
            }
        } onCancel: {
            exchange.cancel()
        }
    }

    private func onThread(
        named name: String,
        _ body: @escaping @Sendable () -> Result<UnpackReport, ArchiveError>,
        onCancel: @Sendable () -> Void
    ) async throws(ArchiveError) -> UnpackReport {
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                do throws(FileError) {
                    try SystemThread(name: name) { continuation.resume(returning: body()) }.detach()
                } catch {
                    continuation.resume(returning: .failure(.fileSystem(error)))
                }
            }
        } onCancel: {
            onCancel()
        }
        return try result.get()
    }

    private func warnOnce(of confinement: Confinement) {
        guard !confinement.restrictsFiles, !hasWarned.exchange(true, ordering: .relaxed) else {
            return
        }
        logger.warning(
            "the kernel cannot confine the unpacking of archives",
            metadata: ["landlock.version": "\(confinement.version)"]
        )
    }
}

extension UnpackRequest {
    /// Unpacks the archive on the calling thread, which it confines to the destination for good.
    func unpackConfined(_ events: UnpackEvents) throws(ArchiveError) -> UnpackReport {
        UTF8Locale.prepare()
        // Where the system does not allow it, the mode of each file is set instead.
        _ = SystemThread.clearOwnMask()
        let confinement = try ArchiveError.wrapping { () throws(FileError) in
            try Confinement.confineThread(beneath: destination)
        }
        var report = try unpack(events)
        report.confinement = confinement
        return report
    }
}
