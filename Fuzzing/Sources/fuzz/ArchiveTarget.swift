import Glibc
import StageModel
import StageTesting
import SystemPackage

@testable import StageArchive

/// Headers of tar archives and the central directory of zip archives, which are parsed in addition to
/// libarchive's parsing.
///
/// - The result for a tar archive does not depend on the pieces in which it arrives: the same entries, and
///   the same first fault.
/// - Entries of a tar archive begin at blocks within it, and none within the content of another.
/// - Two readings of a zip archive have the same result.
enum ArchiveTarget: FuzzTarget {
    static func test(_ bytes: [UInt8]) {
        if bytes.starts(with: [0x50, 0x4B]) { return checkZip(bytes) }
        let whole = read(bytes, inPiecesOf: max(bytes.count, 1))
        checkSizes(bytes, of: whole.starts)
        // Reading byte by byte would take long for more bytes.
        for size in bytes.count <= 2048 ? [1, 511, 700] : [511, 700] {
            let pieces = read(bytes, inPiecesOf: size)
            require(pieces.fault == whole.fault, "a fault is one in pieces")
            require(pieces.starts == whole.starts, "entries are those in pieces")
        }
    }

    /// Checks that no entry begins within the content of the one before it.
    private static func checkSizes(_ bytes: [UInt8], of starts: [Int64]) {
        for (start, next) in zip(starts, starts.dropFirst()) {
            let block = Array(bytes[Int(start)..<Int(start) + TarHeader.length])
            let header = TarHeader(block)
            guard header.kind == .file, let size = header.size else { continue }
            require(next - start - Int64(TarHeader.length) >= size, "content is no header")
        }
    }

    private struct Reading {
        var fault: String?
        var starts: [Int64]
    }

    private static func read(_ bytes: [UInt8], inPiecesOf size: Int) -> Reading {
        var headers = TarHeaders()
        for start in stride(from: 0, to: bytes.count, by: size) {
            let piece = Array(bytes[start..<min(start + size, bytes.count)])
            unsafe piece.withUnsafeBytes { buffer in unsafe headers.read(buffer) }
        }
        let fault = headers.fault.map { "\($0.start): \($0.error)" }
        // Each entry is taken once, in the order of the archive.
        let blocks = stride(from: Int64(0), through: Int64(bytes.count), by: TarHeader.length)
        let starts = blocks.filter { headers.takeEntry(at: $0) }
        return Reading(fault: fault, starts: starts)
    }

    private static func checkZip(_ bytes: [UInt8]) {
        let limits = UnpackLimits(entries: 1000, bytes: .mebibytes(16))
        guard ftruncate(file.rawValue, off_t(0)) == 0 else { fatalError("no room") }
        let count = unsafe pwrite(file.rawValue, bytes, bytes.count, 0)
        guard count == bytes.count else { fatalError("no room") }
        let first: Void? = parsed { () throws(ArchiveError) in
            try ZipDirectory.check(file, limits: limits)
        }
        let second: Void? = parsed { () throws(ArchiveError) in
            try ZipDirectory.check(file, limits: limits)
        }
        require((first == nil) == (second == nil), "an archive is judged the same twice")
    }

    /// A file without a name, into which each zip archive is written.
    private static let file: FileDescriptor = {
        guard let stream = unsafe tmpfile() else { fatalError("no file") }
        return FileDescriptor(rawValue: unsafe fileno(stream))
    }()

    static func seeds() -> [[UInt8]] {
        var tar = TarBuilder()
        tar.add(.init("a/b.txt", content: Array("content".utf8)))
        tar.add(.init("a/link", .link, target: "b.txt"))
        tar.add(.init("a/hard", .hardLink, target: "a/b.txt"))
        tar.add(.init("dir/", .directory))
        tar.addPax(("path", "long/name"), ("size", "3"), ("SCHILY.xattr.security.selinux", "x"))
        tar.add(.init("x", content: [1, 2, 3]))
        tar.add(.init("long", .longName, content: Array("a/long/name".utf8) + [0]))
        tar.add(.init("y"))
        tar.finish()
        // An entry of the largest size: the size is a binary number, as GNU tar writes it.
        var largest = TarBuilder()
        largest.add(.init("z"))
        largest.add(.init("zz"))
        largest.finish()
        var vast = largest.bytes
        vast.replaceSubrange(
            124..<136,
            with: [0x80, 0, 0, 0, 0x7F] + [UInt8](repeating: 0xFF, count: 7)
        )
        var sparse = TarBuilder()
        sparse.addSparse("s", size: 10)
        sparse.finish()
        var described = ZipBuilder.Entry("d", content: [4, 5])
        described.hasDescriptor = true
        let zip = ZipBuilder(
            .init("a/b.txt", content: Array("content".utf8)),
            .init("a/link", content: Array("b.txt".utf8), mode: 0o120777),
            described
        )
        return [tar.bytes, vast, sparse.bytes, zip.bytes, ZipBuilder().bytes]
    }

    static let words =
        [
            [0x50, 0x4B, 1, 2], [0x50, 0x4B, 3, 4], [0x50, 0x4B, 5, 6], [0x50, 0x4B, 6, 6],
            [0x50, 0x4B, 6, 7], [0xFF, 0xFF, 0xFF, 0xFF], [1, 0, 16, 0], [0x75, 0x70],
            [0x80, 0, 0, 0, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
        ]
        + utf8(
            "ustar\u{0}00",
            "ustar  \u{0}",
            "path=",
            "linkpath=",
            "size=",
            "SCHILY.xattr.",
            "GNU.sparse.",
            "12 path=a/b\n"
        )
}
