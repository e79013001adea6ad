import Foundation
import StageSystem
import SystemPackage

/// The body of a request, as a file that is opened each time the body is sent.
struct RequestBody: Sendable {
    /// Opens the file.
    let open: @Sendable () throws(FileError) -> File
    /// Size in bytes.
    let size: Int64

    private static let name = FilePath("the body of the request")

    /// Uses a file, which must be a regular one.
    init(file: URL) throws(FileError) {
        let path = FilePath(file.path)
        let status = try File.open(readingRegular: path).status()
        size = status.size
        open = { () throws(FileError) -> File in try File.open(readingRegular: path) }
    }

    /// Copies bytes into a file in memory.
    init(data: Data) throws(FileError) {
        let memory = Memory(try AnonymousFile.makeInMemory())
        try memory.write(data)
        self.init(memory)
    }

    /// Reads a stream to its end into an unnamed temporary file; blocks the thread.
    init(stream: InputStream) throws {
        let directory = FilePath(FileManager.default.temporaryDirectory.path)
        let memory = Memory(try AnonymousFile.make(in: directory))
        guard stream.streamStatus == .notOpen else {
            let reason = "the stream of the body was read before"
            throw URLError(.requestBodyStreamExhausted, reason: reason)
        }
        stream.open()
        defer { stream.close() }
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let count = unsafe buffer.withUnsafeMutableBufferPointer { bytes in
                guard let start = bytes.baseAddress else { return 0 }
                return unsafe stream.read(start, maxLength: bytes.count)
            }
            if count < 0 {
                let error = stream.streamStatus == .error ? stream.streamError : nil
                throw error ?? URLError(.requestBodyStreamExhausted)
            }
            if count == 0 { break }
            try memory.write(Data(buffer[..<count]))
        }
        self.init(memory)
    }

    private init(_ memory: Memory) {
        size = memory.size
        open = { () throws(FileError) -> File in
            File(adopting: try memory.duplicate(), path: Self.name)
        }
    }

    /// An unnamed file.
    private final class Memory: @unchecked Sendable {
        private let descriptor: FileDescriptor
        /// Size in bytes, which does not change once the body is complete.
        private(set) var size: Int64 = 0

        /// Takes ownership of an empty file.
        init(_ descriptor: FileDescriptor) { self.descriptor = descriptor }

        deinit {
            // The file has no name: closing it discards its content, so an error does not matter.
            try? descriptor.close()
        }

        func write(_ data: Data) throws(FileError) {
            do {
                try descriptor.writeAll(toAbsoluteOffset: size, data)
            } catch {
                throw FileError("write", path: RequestBody.name, errno: error as? Errno ?? .ioError)
            }
            size += Int64(data.count)
        }

        func duplicate() throws(FileError) -> FileDescriptor {
            try AnonymousFile.duplicate(descriptor)
        }
    }
}
