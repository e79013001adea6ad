package import StageModel

extension Planner {
    /// Returns the ways to transfer an indexed pack, from its manifest entry; `nil` for a pack without an
    /// index.
    package func transferCandidates(for pack: Pack) -> TransferCandidates? {
        guard let index = pack.index else { return nil }
        let base = staged[pack.id]?.contentDigest
        var candidates = TransferCandidates(of: index, isUpdate: base != nil, from: base)
        func remaining(_ size: ByteCount, of digest: Digest) -> ByteCount {
            max(.zero, size - (downloaded[digest] ?? .zero))
        }
        candidates.archive = pack.archive.map { remaining($0.size, of: $0.digest) }
        candidates.patch = candidates.namedPatch.map { remaining($0.size, of: $0.digest) }
        return candidates
    }

    /// Returns the maximum number of bytes to transfer for the pack, provided that the server still has the
    /// content of partial downloads: the rest of the archive, or the index and the content.
    ///
    /// - Parameters:
    ///   - entry: The entry of the pack, with the choice of an indexed one.
    ///   - isFirst: Pass `true` if downloaded bytes of an archive count for this pack.
    /// - Returns: The number of bytes.
    func transferSize(of entry: Plan.Entry, isFirst: Bool) -> ByteCount {
        let pack = entry.pack
        if let choice = entry.transfer, let index = pack.index {
            return choice.byteCount + (choice.includesIndex ? .zero : index.size)
        }
        guard isFirst else { return pack.downloadSize }
        return max(.zero, pack.downloadSize - (downloaded[pack.contentDigest] ?? .zero))
    }
}
