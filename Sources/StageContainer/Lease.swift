public import StageModel
import StageSystem
public import SystemPackage

/// Keeps a generation from being removed for as long as the value lives.
public final class Lease: Sendable {
    /// The pack.
    public let id: PackID
    /// The generation that is kept.
    public let generation: GenerationName
    /// The directory with the pack's files.
    public let content: FilePath
    private let lock: FileLock

    init(id: PackID, generation: GenerationName, content: FilePath, lock: consuming FileLock) {
        self.id = id
        self.generation = generation
        self.content = content
        self.lock = lock
    }
}
