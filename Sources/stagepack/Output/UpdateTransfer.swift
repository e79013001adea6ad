import StageEngine
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
        let set = new.deltaSets[base]
        let estimate =
            set.map { UpdateEstimate(from: old.index, to: new.index, using: $0) } ?? bundles
        let objects = estimate.bundleBytes + estimate.deltaBytes
        self.estimate = estimate
        var candidates = TransferCandidates(of: new.reference, isUpdate: true, from: base)
        candidates.archive = new.archive?.size
        candidates.patch = candidates.namedPatch?.size
        if var choice = candidates.choiceBeforeIndex {
            choice.objects = objects + candidates.indexSize
            (self.choice, byteCount, requests) = (choice, choice.byteCount, 2)
            return
        }
        var choice = candidates.choice(objects: bundles.bundleBytes)
        var table = ByteCount.zero
        var requestsOfTable = 0
        if candidates.needsTable(toCompareWith: choice) {
            table = candidates.namedSet?.tableSize ?? .zero
            // The table is transferred in any case.
            choice = candidates.choice(objects: objects - table)
            requestsOfTable = 1
        } else if choice.way == .objects {
            choice.objects = objects
        }
        self.choice = choice
        byteCount = candidates.indexSize + table + choice.byteCount
        requests = 1 + (choice.way == .objects ? estimate.requests : 1 + requestsOfTable)
    }
}
