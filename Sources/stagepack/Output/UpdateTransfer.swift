import StageIndex
import StageModel
import StagePublish

/// The transfer of an update between two versions of a store, by a client that has all files of the older one, and enough space
/// and memory.
struct UpdateTransfer {
    /// The requests and bytes of an update by objects.
    let estimate: UpdateEstimate
    /// The ways to transfer the update.
    let choice: TransferChoice
    /// The bytes of all requests, including those for the index.
    let byteCount: ByteCount
    /// The number of all requests.
    let requests: Int

    init(from old: StoredIndex, to new: StoredIndex) {
        let base = old.reference.contentDigest
        let bundles = UpdateEstimate(from: old.index, to: new.index)
        var candidates = TransferCandidates(of: new.reference, isUpdate: true, from: base)
        candidates.archive = new.archive?.size
        candidates.patch = candidates.namedPatch?.size
        let set =
            candidates.usesSet(insteadOf: bundles.bundleBytes) ? new.deltaSets[base] : nil
        let withSet = set.map { UpdateEstimate(from: old.index, to: new.index, using: $0) }
        let estimate = withSet ?? bundles
        let objects = estimate.bundleBytes + estimate.deltaBytes
        self.estimate = estimate
        if var choice = candidates.choiceBeforeIndex {
            choice.objects = objects + candidates.indexSize
            (self.choice, byteCount, requests) = (choice, choice.byteCount, 2)
            return
        }
        let (choice, table) = candidates.choice(
            bundles: bundles.bundleBytes,
            withSet: withSet.map { $0.bundleBytes + $0.deltaBytes }
        )
        // The table of the set may be requested for the choice.
        let requestsOfOther = table == .zero ? 1 : 2
        self.choice = choice
        byteCount = candidates.indexSize + table + choice.byteCount
        requests = 1 + (choice.way == .objects ? estimate.requests : requestsOfOther)
    }
}
