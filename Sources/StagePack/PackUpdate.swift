public import StageModel

/// Updates about a pack that is fetched on demand.
///
/// The cases correspond to those of Apple's `AssetPackManager.statusUpdates`, except for its pauses: these are progress
/// with ``FetchProgress/waitingFor``.
@nonexhaustive
public enum PackUpdate: Equatable, Sendable {
    /// The fetch has started.
    case began(PackID)
    /// Bytes were received or files were written, or the fetch waits.
    case downloading(PackID, FetchProgress)
    /// The pack is staged.
    case finished(PackID)
    /// The fetch failed.
    case failed(PackID, PackStoreError)

    /// The pack that the update is about.
    public var id: PackID {
        switch self {
        case .began(let id), .downloading(let id, _), .finished(let id), .failed(let id, _): id
        }
    }
}
