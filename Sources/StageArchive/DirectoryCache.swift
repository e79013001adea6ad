import Glibc

/// The path of an entry as bytes that a zero byte follows, in a buffer that may be changed.
@safe struct PathBytes {
    private let bytes: UnsafeMutableRawBufferPointer
    /// How many bytes the path has, the zero byte not counted.
    let count: Int

    /// Looks at the path of `count` bytes at the beginning of `bytes`.
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

    /// How many bytes the path of the parent directory has.
    var parentLength: Int { parentLength(of: count) }

    /// How many bytes the parent of the first `count` bytes has.
    func parentLength(of count: Int) -> Int {
        var index = count
        while index > 0 {
            index -= 1
            if unsafe bytes[index] == UInt8(ascii: "/") { return index }
        }
        return 0
    }

    /// Whether the byte at `index` ends a component.
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

/// A few open directories, by their path.
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

    /// Returns the open directory at `path`, if it is one of the few.
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

    /// Takes over an open directory, and closes the one that was used longest ago if there are many.
    mutating func add(_ path: UnsafeRawBufferPointer, _ descriptor: CInt) {
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
