import StageModel

/// The name of an object in a store, which consists of digests.
struct StoreObjectName {
    /// The digest of the object's bytes; `nil` for `<SHA-256>.from.<SHA-256>`, the delta of an index, which is named by other
    /// bytes.
    let digest: Digest?
    /// The digest of the decompressed index that the object belongs to; `nil` if the name does not have it.
    let content: Digest?
    /// The digest of the decompressed index of an older version; `nil` if the name does not have it.
    let base: Digest?

    /// Parses `<SHA-256>`, `<SHA-256>.of.<SHA-256>`, `<SHA-256>.from.<SHA-256>` and
    /// `<SHA-256>.of.<SHA-256>.from.<SHA-256>`, which are the names of objects; `nil` for any other name.
    ///
    /// The last form is that of patches, and of the deltas of indexes for clients of patches.
    init?(_ name: String) {
        let parts = name.split(separator: ".", omittingEmptySubsequences: false)
        func digest(_ part: Int) -> Digest? {
            guard let digest = try? Digest(hexadecimal: String(parts[part])),
                digest.description == String(parts[part])
            else { return nil }
            return digest
        }
        switch parts.count {
        case 1:
            guard let first = digest(0) else { return nil }
            (self.digest, content, base) = (first, nil, nil)
        case 3:
            guard let first = digest(0), let second = digest(2) else { return nil }
            switch parts[1] {
            case "of": (self.digest, content, base) = (first, second, nil)
            case "from": (self.digest, content, base) = (nil, first, second)
            default: return nil
            }
        case 5:
            guard let first = digest(0), let second = digest(2), let third = digest(4),
                parts[1] == "of", parts[3] == "from"
            else { return nil }
            (self.digest, content, base) = (first, second, third)
        default:
            return nil
        }
    }
}
