import StageModel

/// The bytes of an entry's names as its archive states them, where libarchive may return other bytes.
///
/// libarchive converts names that an archive declares as UTF-8, which are those of pax records, of zip entries with the
/// UTF-8 flag and of Unicode path fields: to Unicode normalization form C, and pairs of surrogates (CESU-8) to one
/// character. Canonically equivalent names are different files, so the archive's bytes count. A name that
/// libarchive does not convert, as one of ASCII, may be `nil`.
struct StatedNames {
    var path: [UInt8]?
    /// The target of a symbolic or hard link.
    var target: [UInt8]?

    var isEmpty: Bool { path == nil && target == nil }

    /// Returns the bytes of a name unless they are ASCII.
    static func unlessASCII(_ name: [UInt8]) -> [UInt8]? {
        name.allSatisfy { $0 < 0x80 } ? nil : name
    }

    /// Returns a name of `entry`: the stated bytes, if any, else the text of libarchive.
    ///
    /// `noun` is "path" or "target".
    ///
    /// - Throws: ``ArchiveError/notAllowed(entry:_:)`` for bytes that are not UTF-8, and
    ///   ``ArchiveError/damaged(entry:_:)`` if libarchive's text is not canonically equivalent to them.
    static func resolve(
        _ stated: [UInt8]?,
        converted: String,
        noun: String,
        entry: String?
    ) throws(ArchiveError) -> String {
        guard let stated else { return converted }
        let text = String(decoding: stated, as: UTF8.self)
        guard text.utf8.elementsEqual(stated) else {
            throw .notAllowed(
                entry: entry ?? text.clipped,
                ValueError(expected: "a \(noun) in UTF-8", text: text)
            )
        }
        // Packs have no longer names (with './' and '/'), and comparing one of combining characters takes hours.
        guard stated.count <= max(ContentPath.maximumLength, LinkTarget.maximumLength) + 3 else {
            return text
        }
        // Swift compares strings by canonical equivalence. libarchive adds a slash to directories of zip archives.
        guard text == converted || text + "/" == converted else {
            throw .damaged(entry: entry ?? text.clipped, "its headers are ambiguous")
        }
        return text
    }
}
