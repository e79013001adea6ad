import StageModel
import StageSystem
import SystemPackage

/// The body of an upload: as many bytes of a file as it had to begin with.
///
/// It belongs to the engine's thread. The file is read in order and by small pieces, which the kernel
/// reads ahead of: that is why the thread may do it.
@safe final class UploadSource {
    /// How many bytes there are to send.
    let size: Int64
    /// How many bytes were handed over, however often.
    private(set) var total: Int64 = 0
    /// Why the file cannot be sent any more.
    private(set) var failure: TransferError?
    private let file: File
    private let report: @Sendable (TransferEvent) -> Void
    private var position: Int64 = 0
    private var reported: Int64 = 0
    private var buffer: [UInt8] = []

    /// Takes over a file, which must be a regular one, and reports what of it was sent.
    init(
        _ file: consuming File,
        _ report: @escaping @Sendable (TransferEvent) -> Void
    ) throws(TransferError) {
        do throws(FileError) {
            let status = try file.status()
            guard status.kind == .file else {
                throw FileError("read", file.path, .invalidArgument)
            }
            size = status.size
        } catch {
            throw .storage(error)
        }
        self.file = file
        self.report = report
    }

    /// Whether the last byte was handed over.
    var isSent: Bool { position == size }

    /// Goes on at another place, at the beginning for another attempt.
    func seek(to offset: Int64) {
        position = offset
        reported = offset
    }

    /// Reads the next bytes, and returns how many there were: 0 at the end, `nil` if the file became
    /// shorter or cannot be read.
    func read(into target: UnsafeMutableRawBufferPointer) -> Int? {
        let count = Int(min(Int64(target.count), size - position))
        guard count > 0 else { return 0 }
        if buffer.count != count { buffer = [UInt8](repeating: 0, count: count) }
        do throws(FileError) {
            let read = try file.read(into: &buffer, at: position)
            guard read > 0 else {
                failure = .wrongSize(
                    url: file.path.string,
                    expected: ByteCount(size),
                    actual: ByteCount(try file.status().size)
                )
                return nil
            }
            unsafe target.copyBytes(from: buffer[..<read])
            advance(by: Int64(read))
            return read
        } catch {
            failure = .storage(error)
            return nil
        }
    }

    private func advance(by count: Int64) {
        position += count
        total += count
        guard position - reported >= Self.reportInterval || isSent else { return }
        reported = position
        report(.sent(ByteCount(position)))
    }

    private static let reportInterval: Int64 = 1 << 18
}
