import Glibc

/// The path of an entry as a zero-terminated string in a mutable buffer.
@safe struct PathBytes {
    private let bytes: UnsafeMutableRawBufferPointer
    /// The number of bytes without the terminator.
    let count: Int

    /// Refers to the path of `count` bytes at the start of `bytes`.
    init(_ bytes: UnsafeMutableRawBufferPointer, count: Int) {
        unsafe self.bytes = unsafe bytes
        self.count = count
    }

    /// The path as a C string.
    var start: UnsafePointer<CChar> {
        guard let base = unsafe bytes.baseAddress else { fatalError("an entry without a path") }
        return unsafe UnsafePointer(base.assumingMemoryBound(to: CChar.self))
    }

    /// The last component as a C string.
    var name: UnsafePointer<CChar> {
        let above = parentLength
        return unsafe start + (above == 0 ? 0 : above + 1)
    }

    /// The number of bytes of the parent directory's path.
    var parentLength: Int { parentLength(of: count) }

    /// Returns the number of bytes of the parent of the first `count` bytes.
    func parentLength(of count: Int) -> Int {
        var index = count
        while index > 0 {
            index -= 1
            if unsafe bytes[index] == UInt8(ascii: "/") { return index }
        }
        return 0
    }

    /// Returns whether the byte at `index` ends a component.
    func isSeparator(at index: Int) -> Bool { unsafe bytes[index] == UInt8(ascii: "/") }

    func prefix(_ count: Int) -> UnsafeRawBufferPointer {
        unsafe UnsafeRawBufferPointer(rebasing: bytes[..<count])
    }

    var text: String { text(count) }

    func text(_ count: Int) -> String { unsafe String(decoding: prefix(count), as: UTF8.self) }

    /// Calls `body` with the first `count` bytes as a C string.
    func terminated<Result>(
        at count: Int,
        _ body: (UnsafePointer<CChar>) -> Result
    ) -> Result {
        let replaced = unsafe bytes[count]
        unsafe bytes[count] = 0
        defer { unsafe bytes[count] = replaced }
        return unsafe body(start)
    }
}

/// A small cache of open directories, by path.
struct DirectoryCache: ~Copyable {
    private struct Entry {
        var path: [UInt8]
        var descriptor: CInt
        var lastUse: Int
    }

    private var entries: [Entry] = []
    private var clock = 0

    private static let capacity = 24

    deinit {
        for entry in entries { close(entry.descriptor) }
    }

    /// Returns the open directory at `path` if it is cached.
    mutating func find(_ path: UnsafeRawBufferPointer) -> CInt? {
        clock += 1
        for index in entries.indices.reversed() {
            let isSame = unsafe entries[index].path.withUnsafeBytes { known in
                unsafe known.elementsEqual(path)
            }
            guard isSame else { continue }
            entries[index].lastUse = clock
            return entries[index].descriptor
        }
        return nil
    }

    /// Adds an open directory, which the cache closes; evicts the least recently used one if the cache is
    /// full.
    mutating func add(_ path: UnsafeRawBufferPointer, descriptor: CInt) {
        if entries.count == Self.capacity,
            let oldest = entries.indices.min(by: { entries[$0].lastUse < entries[$1].lastUse })
        {
            close(entries[oldest].descriptor)
            entries.remove(at: oldest)
        }
        entries.append(
            Entry(path: unsafe Array(path), descriptor: descriptor, lastUse: clock)
        )
    }
}
