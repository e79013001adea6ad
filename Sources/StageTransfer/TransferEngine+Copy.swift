import StageModel
import StageSystem
import SystemPackage

extension TransferEngine {
    /// Copies the content of a file URL into a new generation.
    ///
    /// A copy is not resumed: reading the source again costs less than checking that it has not changed.
    func copy(
        _ source: TransferURL,
        into download: inout Download,
        progress: inout TransferStateMachine.Progress
    ) async -> TransferStateMachine.Outcome {
        download.request.report(.connecting(url: source.display))
        download.reused = 0
        download.status = nil
        let copy = LocalCopy(
            source: source,
            part: download.part,
            size: download.request.size,
            recordsFrom: configuration.checkpoint.smallest.rawValue,
            report: download.request.report
        )
        let outcome = await withCancellableThread { copy.run(unless: $0) }
        progress.wasAccepted = download.part.length > .zero
        progress.newBytes = download.part.length.rawValue
        return outcome
    }
}

/// Copies a local file; blocks the thread for as long as its file system does.
private struct LocalCopy: Sendable {
    let source: TransferURL
    let part: PartialFile
    /// Required size of the file, if known.
    let size: ByteCount?
    let recordsFrom: Int64
    let report: @Sendable (TransferEvent) -> Void

    func run(unless cancellation: Cancellation) -> TransferStateMachine.Outcome {
        do throws(FileError) {
            // Only regular files: opening a device or a FIFO can have side effects, and reading it need not end.
            let file = try File.open(readingRegular: FilePath(source.path))
            let actual = ByteCount(try file.status().size)
            guard actual == size ?? actual else {
                return wrongSize(expected: size ?? actual, actual: actual)
            }
            return try copy(file, size: actual, unless: cancellation)
        } catch  where error.path == FilePath(source.path) {
            return .permanent(TransferError(reading: source, error))
        } catch {
            return .local(TransferError(error))
        }
    }

    private func wrongSize(
        expected: ByteCount,
        actual: ByteCount
    ) -> TransferStateMachine.Outcome {
        .permanent(.wrongSize(url: source.display, expected: expected, actual: actual))
    }

    private func copy(
        _ file: borrowing File,
        size: ByteCount,
        unless cancellation: Cancellation
    ) throws(FileError) -> TransferStateMachine.Outcome {
        let content = try part.begin(
            total: size.rawValue,
            validator: nil,
            url: source.display,
            isRecorded: size.rawValue > recordsFrom
        )
        report(.accepted(generation: part.generation, path: part.path, resumingAt: .zero))
        var buffer = [UInt8](repeating: 0, count: Int(min(size.rawValue, 1 << 20)))
        var position: Int64 = 0
        while position < size.rawValue {
            guard !cancellation.isRequested else { return .local(.cancelled) }
            if let fault = part.fault { throw fault }
            let count = try file.read(into: &buffer, at: position)
            guard count > 0 else { break }
            let taken = min(count, Int(size.rawValue - position))
            try content.file.write(buffer.span.extracting(0..<taken), at: position)
            position += Int64(taken)
            part.grow(to: position)
            report(.received(ByteCount(position)))
        }
        return position == size.rawValue
            ? .complete : wrongSize(expected: size, actual: ByteCount(position))
    }
}
