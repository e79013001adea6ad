import StageDigest
import StageIndex
import StageModel
import StageSystem
import SystemPackage

/// A version whose new frames are in bundles that nobody asks for yet.
struct DraftVersion: ~Copyable {
    /// The index; its last bundles are the drafts.
    private(set) var index: ContentIndex
    /// The bundles of the frames that no earlier version had.
    var drafts: BundleDrafts
    /// The bytes of these frames, as they are stored.
    let newBytes: Int64

    init(index: ContentIndex, drafts: consuming BundleDrafts, newBytes: Int64) {
        self.index = index
        self.drafts = drafts
        self.newBytes = newBytes
    }

    /// The frames, in the store and in the drafts.
    var frames: StoredFrames {
        StoredFrames(
            index: index,
            bundles: drafts.directory,
            drafts: drafts.names
        )
    }
}
