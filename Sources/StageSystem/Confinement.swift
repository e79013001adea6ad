import CLinux
import Glibc
import SystemPackage

/// What a thread was confined to, as far as the kernel can.
///
/// Landlock (landlock(7)) takes rights from a thread for good: what it opened before stays open, but
/// it opens nothing more elsewhere, whatever the code it runs is tricked into. Each version of its
/// interface adds to what can be taken; a kernel without it confines nothing, and the value says so.
public struct Confinement: Hashable, Sendable, Codable {
    /// The version of the kernel's interface; 0 where there is none.
    public var version: Int
    /// Whether files outside the directory can neither be read nor written.
    public var restrictsFiles: Bool
    /// Whether no TCP port can be bound or connected to.
    public var restrictsNetwork: Bool
    /// Whether signals and abstract sockets of other processes are out of reach.
    public var restrictsScope: Bool

    /// The version of Landlock that the kernel has; 0 where there is none or it is off.
    public static var supportedVersion: Int { max(0, Int(stage_landlock_version())) }

    /// No confinement at all.
    public static let none = Confinement(
        version: 0,
        restrictsFiles: false,
        restrictsNetwork: false,
        restrictsScope: false
    )

    /// Confines the calling thread, and the threads it makes from now on, to reading, creating and
    /// writing files, directories and symbolic links beneath `directory`.
    ///
    /// There is no way back: the thread should end with the work it was made for.
    ///
    /// - Returns: what the kernel was able to take away, which is nothing where it has no Landlock.
    /// - Throws: ``FileError`` if the kernel has Landlock and yet refused.
    public static func confineThread(beneath directory: Directory) throws(FileError) -> Confinement
    {
        let path = directory.path
        try Directory.attempt("confine to", path) { stage_no_new_privileges() }
        let version = Int(stage_landlock_version())
        guard version >= 1 else { return .none }
        var handled = handled(version)
        let size = MemoryLayout<UInt64>.size * (version < 4 ? 1 : version < 6 ? 2 : 3)
        let ruleset = try Directory.attempt("confine to", path) {
            unsafe stage_landlock_create(&handled, size)
        }
        defer { close(ruleset) }
        let parent = directory.descriptor.rawValue
        try Directory.attempt("confine to", path) {
            stage_landlock_allow(ruleset, parent, allowed(version))
        }
        try Directory.attempt("confine to", path) { stage_landlock_restrict(ruleset) }
        return Confinement(
            version: version,
            restrictsFiles: true,
            restrictsNetwork: version >= 4,
            restrictsScope: version >= 6
        )
    }

    /// Everything that this version of the interface can take away.
    static func handled(_ version: Int) -> stage_landlock_handled {
        // The rights are bits in the order they were added: 13 in the first version.
        let count =
            switch version {
            case 1: 13
            case 2: 14
            case 3, 4: 15
            default: 16
            }
        return stage_landlock_handled(
            files: (1 << UInt64(count)) - 1,
            network: version >= 4 ? 0b11 : 0,
            scopes: version >= 6 ? 0b11 : 0
        )
    }

    /// What stays allowed beneath the directory.
    private static func allowed(_ version: Int) -> UInt64 {
        var access =
            UInt64(LANDLOCK_ACCESS_FS_READ_FILE) | UInt64(LANDLOCK_ACCESS_FS_READ_DIR)
            | UInt64(LANDLOCK_ACCESS_FS_WRITE_FILE) | UInt64(LANDLOCK_ACCESS_FS_MAKE_REG)
            | UInt64(LANDLOCK_ACCESS_FS_MAKE_DIR) | UInt64(LANDLOCK_ACCESS_FS_MAKE_SYM)
        if version >= 3 { access |= UInt64(LANDLOCK_ACCESS_FS_TRUNCATE) }
        return access
    }
}

/// What a process may use at most (setrlimit(2)).
public struct ResourceLimits: Hashable, Sendable {
    /// The largest file it may write.
    public var fileSize: UInt64
    /// The seconds of processor time it may still use.
    public var processorSeconds: UInt64

    /// Address space for a decoder with its dictionary, and for the runtime.
    private static let addressSpace: UInt64 = 4 << 30
    private static let openFiles: UInt64 = 256

    /// Creates limits from the largest file and the processor time from now on.
    public init(fileSize: UInt64, processorSeconds: UInt64) {
        self.fileSize = fileSize
        self.processorSeconds = processorSeconds
    }

    /// Limits address space and open files of this process for good, and forbids core dumps.
    public static func limitProcess() throws(FileError) {
        try set(CInt(RLIMIT_CORE.rawValue), 0, isFinal: true)
        try set(CInt(RLIMIT_AS.rawValue), addressSpace, isFinal: true)
        try set(CInt(RLIMIT_NOFILE.rawValue), openFiles, isFinal: true)
    }

    /// Applies these limits to the whole process, until the next ones are.
    public func apply() throws(FileError) {
        try Self.set(CInt(RLIMIT_FSIZE.rawValue), fileSize, isFinal: false)
        let used = stage_cpu_seconds()
        try Self.set(CInt(RLIMIT_CPU.rawValue), used &+ processorSeconds, isFinal: false)
    }

    private static func set(
        _ resource: CInt,
        _ limit: UInt64,
        isFinal: Bool
    ) throws(FileError) {
        try Directory.attempt("limit", "/proc/self/limits") {
            stage_set_limit(resource, limit, isFinal ? 1 : 0)
        }
    }
}
