public import StageModel

/// Time and resource limits of a downloader extension, per message.
public struct ExtensionLimits: Hashable, Sendable {
    /// Maximum run time, in which the machine is not suspended.
    public var timeLimit: Duration
    /// Maximum address space of each process.
    public var addressSpace: ByteCount
    /// Maximum size of files that the program writes.
    public var fileSize: ByteCount
    /// Maximum processor time of each process, in seconds.
    public var cpuSecondLimit: Int

    /// Creates limits for a program that makes decisions and moves files: 30 s, 1 GiB of address space (most of which
    /// runtimes reserve without using), and files of 4 GiB.
    ///
    /// Downloaded files may be larger, since the program only moves them.
    public init(
        timeLimit: Duration = .seconds(30),
        addressSpace: ByteCount = .mebibytes(1 << 10),
        fileSize: ByteCount = .mebibytes(4 << 10),
        cpuSecondLimit: Int = 30
    ) {
        self.timeLimit = timeLimit
        self.addressSpace = addressSpace
        self.fileSize = fileSize
        self.cpuSecondLimit = cpuSecondLimit
    }
}
