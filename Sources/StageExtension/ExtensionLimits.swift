public import StageModel

/// How long a downloader extension may run for one message, and how much it may use.
public struct ExtensionLimits: Hashable, Sendable {
    /// How long it may run.
    public var deadline: Duration
    /// The address space that each of its processes may have.
    public var addressSpace: ByteCount
    /// The largest file that it may write.
    public var fileSize: ByteCount
    /// The seconds of processor time that each of its processes may have.
    public var processorSeconds: Int

    /// Creates the limits of a program that decides and moves files: 30 s, 1 GiB of address space,
    /// of which runtimes reserve most without using it, and files of 4 GiB.
    ///
    /// A file that was downloaded for it may be larger: it is moved.
    public init(
        deadline: Duration = .seconds(30),
        addressSpace: ByteCount = .mebibytes(1 << 10),
        fileSize: ByteCount = .mebibytes(4 << 10),
        processorSeconds: Int = 30
    ) {
        self.deadline = deadline
        self.addressSpace = addressSpace
        self.fileSize = fileSize
        self.processorSeconds = processorSeconds
    }
}
