import Glibc
import SystemPackage

extension Directory {
    /// Calls `body` with the descriptor of the parent directory of `name` and the last component of `name`.
    func onParent(
        of name: FilePath,
        operation: String,
        call body: (CInt, UnsafePointer<CChar>) -> CInt
    ) throws(FileError) {
        // Avoids FilePath's component views, which are slow. FilePath removes doubled and trailing slashes, so the text
        // after the last slash is a component.
        let (above, last) = unsafe name.withPlatformString { text -> (FilePath?, FilePath) in
            guard let slash = unsafe strrchr(text, CInt(UInt8(ascii: "/"))) else {
                return (nil, name)
            }
            let last = unsafe UnsafePointer(slash + 1)
            let count = unsafe text.distance(to: last)
            var parent = unsafe [CChar](UnsafeBufferPointer(start: text, count: count))
            parent.append(0)
            return unsafe (FilePath(platformString: parent), FilePath(platformString: last))
        }
        guard !last.isEmpty else {
            throw FileError(operation, path: path.pushing(name), errno: .invalidArgument)
        }
        var parent: FileDescriptor?
        if let above { parent = try openFile(above, flags: O_RDONLY | O_DIRECTORY, mode: 0) }
        // Opened for this call only, and not for writing.
        defer { try? parent?.close() }
        let base = parent ?? descriptor
        _ = try Self.attempt(operation, at: path.pushing(name)) {
            unsafe last.withPlatformString { unsafe body(base.rawValue, $0) }
        }
    }

    /// Makes a system call, repeats it after `EINTR`, and throws on -1.
    @discardableResult
    static func attempt(
        _ operation: String,
        at path: @autoclosure () -> FilePath,
        call: () -> CInt
    ) throws(FileError) -> CInt {
        while true {
            let result = call()
            if result >= 0 { return result }
            let reason = Errno(rawValue: errno)
            if reason != .interrupted { throw FileError(operation, path: path(), errno: reason) }
        }
    }

    /// Makes a system call as ``attempt(_:at:call:)`` does, but returns `nil` after `ENOENT`.
    static func attemptIfPresent(
        _ operation: String,
        at path: @autoclosure () -> FilePath,
        call: () -> CInt
    ) throws(FileError) -> CInt? {
        var isPresent = true
        let result = try attempt(operation, at: path()) {
            let result = call()
            guard result < 0, errno == ENOENT else { return result }
            isPresent = false
            return 0
        }
        return isPresent ? result : nil
    }
}
