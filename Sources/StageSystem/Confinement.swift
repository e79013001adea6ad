import CLinux
import Glibc
public import SystemPackage

/// What a thread was confined to, as far as the kernel can.
///
/// Landlock (landlock(7)) takes rights from a thread for good: what it opened before stays open, but
/// it opens nothing more elsewhere, whatever the code it runs is tricked into. Each version of its
/// interface adds to what can be taken; a kernel without it confines nothing, and the value says so.
/// A thread passes its confinement on to the threads that it makes, so the only thread of a process
/// confines the process as a whole.
public struct Confinement: Hashable, Sendable, Codable {
    /// The version of the kernel's interface; 0 where there is none.
    public var version: Int
    /// Whether files outside the directory can neither be read nor written.
    public var restrictsFiles: Bool
    /// Whether no TCP port can be bound or connected to.
    public var restrictsNetwork: Bool
    /// Whether signals and abstract sockets of other processes are out of reach.
    public var restrictsScope: Bool
    /// Whether system calls that decoding does not need are refused (seccomp(2)).
    public var filtersCalls: Bool

    /// Creates the value from its parts.
    package init(
        version: Int,
        restrictsFiles: Bool,
        restrictsNetwork: Bool,
        restrictsScope: Bool,
        filtersCalls: Bool
    ) {
        self.version = version
        self.restrictsFiles = restrictsFiles
        self.restrictsNetwork = restrictsNetwork
        self.restrictsScope = restrictsScope
        self.filtersCalls = filtersCalls
    }

    /// The version of Landlock that the kernel has; 0 where there is none or it is off.
    public static var supportedVersion: Int { max(0, Int(stage_landlock_version())) }

    /// Whether the kernel filters system calls, and this program knows the calls of its processor.
    public static var supportsFilter: Bool { stage_can_filter() == 1 }

    /// Whether the calling thread has rights that other users do not have: it is root's, or has
    /// capabilities.
    public static var isPrivileged: Bool { geteuid() == 0 || stage_has_capabilities() != 0 }

    /// No confinement at all.
    public static let none = Confinement(
        version: 0,
        restrictsFiles: false,
        restrictsNetwork: false,
        restrictsScope: false,
        filtersCalls: false
    )

    /// Confines the calling thread, and the threads it makes from now on, to what decoding an archive
    /// takes: no capabilities, no files but those below `directory`, and the system calls of
    /// `stage_filter_decoder`.
    ///
    /// There is no way back. Called by the only thread of a process, it confines the process.
    ///
    /// - Parameters:
    ///   - directory: Where the thread may create and read; `nil` for nowhere.
    ///   - channel: The socket that the thread may send to; `nil` for none.
    /// - Returns: what the kernel was able to take away: files only where it has Landlock, calls only
    ///   where it has seccomp.
    /// - Throws: ``FileError`` if the kernel could have taken a right away and yet refused.
    public static func confineDecoder(
        beneath directory: Directory?,
        answeringOn channel: FileDescriptor?
    ) throws(FileError) -> Confinement {
        try Directory.attempt("confine to", path(of: directory)) { stage_no_new_privileges() }
        try Directory.attempt("confine to", path(of: directory)) { stage_give_up_capabilities() }
        var confinement = try confineThread(beneath: directory)
        guard supportsFilter else { return confinement }
        try Directory.attempt("confine to", path(of: directory)) {
            stage_filter_decoder(channel?.rawValue ?? -1)
        }
        confinement.filtersCalls = true
        return confinement
    }

    /// Confines the calling thread, and the threads it makes from now on, to reading, creating and
    /// writing files, directories and symbolic links beneath `directory`.
    ///
    /// There is no way back: the thread should end with the work it was made for.
    ///
    /// - Parameter directory: Where the thread may create and read; `nil` for nowhere.
    /// - Returns: what the kernel was able to take away, which is nothing where it has no Landlock.
    /// - Throws: ``FileError`` if the kernel has Landlock and yet refused.
    public static func confineThread(
        beneath directory: Directory?
    ) throws(FileError) -> Confinement {
        let path = path(of: directory)
        try Directory.attempt("confine to", path) { stage_no_new_privileges() }
        let version = Int(stage_landlock_version())
        guard version >= 1 else { return .none }
        var handled = handled(version)
        let size = MemoryLayout<UInt64>.size * (version < 4 ? 1 : version < 6 ? 2 : 3)
        let ruleset = try Directory.attempt("confine to", path) {
            unsafe stage_landlock_create(&handled, size)
        }
        defer { close(ruleset) }
        if let parent = directory?.descriptor.rawValue {
            try Directory.attempt("confine to", path) {
                stage_landlock_allow(ruleset, parent, allowed(version))
            }
        }
        try Directory.attempt("confine to", path) { stage_landlock_restrict(ruleset) }
        return Confinement(
            version: version,
            restrictsFiles: true,
            restrictsNetwork: version >= 4,
            restrictsScope: version >= 6,
            filtersCalls: false
        )
    }

    /// The path that an error of confining names.
    private static func path(of directory: Directory?) -> FilePath {
        directory?.path ?? "/"
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

    /// Applies these limits to the whole process, with limits on address space and open files, for
    /// good; forbids core dumps.
    public func apply() throws(FileError) {
        try Self.set(CInt(RLIMIT_CORE.rawValue), 0)
        try Self.set(CInt(RLIMIT_AS.rawValue), Self.addressSpace)
        try Self.set(CInt(RLIMIT_NOFILE.rawValue), Self.openFiles)
        try Self.set(CInt(RLIMIT_FSIZE.rawValue), fileSize)
        let used = stage_cpu_seconds()
        try Self.set(CInt(RLIMIT_CPU.rawValue), used &+ processorSeconds)
    }

    private static func set(_ resource: CInt, _ limit: UInt64) throws(FileError) {
        try Directory.attempt("limit", "/proc/self/limits") {
            stage_set_limit(resource, limit, 1)
        }
    }
}
