import CLinux
import Glibc
package import SystemPackage

/// The restrictions that confine a thread, as far as the kernel supports them.
///
/// Landlock (landlock(7)) takes rights from a thread permanently: files that are already open stay open, but
/// the thread cannot open others, even if the code that it runs is exploited. Each version of the interface
/// adds rights that can be taken; a kernel without Landlock confines nothing, and the value reports that.
/// Threads inherit the confinement of the thread that creates them, so confining the only thread of a process
/// confines the process.
package struct Confinement: Hashable, Sendable, Codable {
    /// The version of the kernel's interface; 0 where there is none.
    package var version: Int
    /// Indicates whether files outside the directory can neither be read nor written.
    package var restrictsFiles: Bool
    /// Indicates whether no TCP port can be bound or connected to.
    package var restrictsNetwork: Bool
    /// Indicates whether signals to other processes and their abstract sockets are blocked.
    package var restrictsScope: Bool
    /// Indicates whether seccomp(2) refuses system calls that decoding does not need.
    package var filtersCalls: Bool

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

    /// The Landlock version of the kernel; 0 if the kernel has none or it is disabled.
    package static var supportedVersion: Int { max(0, Int(stage_landlock_version())) }

    /// Indicates whether the kernel has seccomp filters, and this program knows the system call numbers of the
    /// processor.
    package static var supportsFilter: Bool { stage_can_filter() == 1 }

    /// Indicates whether the calling thread has rights that ordinary users do not have: it runs as root, or has
    /// capabilities.
    package static var isPrivileged: Bool { geteuid() == 0 || stage_has_capabilities() != 0 }

    /// No confinement.
    package static let none = Confinement(
        version: 0,
        restrictsFiles: false,
        restrictsNetwork: false,
        restrictsScope: false,
        filtersCalls: false
    )

    /// Confines the calling thread, and the threads that it creates later, to the rights that an archive
    /// decoder needs: no capabilities, no files except below `directory`, and the system calls of
    /// `stage_filter_decoder`.
    ///
    /// The confinement cannot be undone. Called by the only thread of a process, it confines the process.
    ///
    /// - Parameters:
    ///   - directory: The directory below which the thread may create and read files; `nil` for none.
    ///   - channel: The socket that the thread may send to; `nil` for none.
    /// - Returns: The restrictions that the kernel applied: files only with Landlock, system calls only with
    ///   seccomp.
    /// - Throws: ``FileError`` if the kernel supports a restriction and refuses to apply it.
    package static func confineDecoder(
        beneath directory: Directory?,
        answeringOn channel: FileDescriptor?
    ) throws(FileError) -> Confinement {
        try Directory.attempt("confine to", at: path(of: directory)) { stage_no_new_privileges() }
        try Directory.attempt("confine to", at: path(of: directory)) {
            stage_give_up_capabilities()
        }
        var confinement = try confineThread(beneath: directory)
        guard supportsFilter else { return confinement }
        try Directory.attempt("confine to", at: path(of: directory)) {
            stage_filter_decoder(channel?.rawValue ?? -1)
        }
        confinement.filtersCalls = true
        return confinement
    }

    /// Confines the calling thread, and the threads that it creates later, to reading, creating and writing
    /// files, directories and symbolic links below `directory`.
    ///
    /// The confinement cannot be undone: the thread should end with the work that it was created for.
    ///
    /// - Parameter directory: The directory below which the thread may create and read files; `nil` for none.
    /// - Returns: The restrictions that the kernel applied: none without Landlock.
    /// - Throws: ``FileError`` if the kernel has Landlock and refuses to apply it.
    package static func confineThread(
        beneath directory: Directory?
    ) throws(FileError) -> Confinement {
        let path = path(of: directory)
        try Directory.attempt("confine to", at: path) { stage_no_new_privileges() }
        let version = Int(stage_landlock_version())
        guard version >= 1 else { return .none }
        var handled = handled(version)
        let size = MemoryLayout<UInt64>.size * (version < 4 ? 1 : version < 6 ? 2 : 3)
        let ruleset = try Directory.attempt("confine to", at: path) {
            unsafe stage_landlock_create(&handled, size)
        }
        defer { close(ruleset) }
        if let parent = directory?.descriptor.rawValue {
            try Directory.attempt("confine to", at: path) {
                stage_landlock_allow(ruleset, parent, allowed(version))
            }
        }
        try Directory.attempt("confine to", at: path) { stage_landlock_restrict(ruleset) }
        return Confinement(
            version: version,
            restrictsFiles: true,
            restrictsNetwork: version >= 4,
            restrictsScope: version >= 6,
            filtersCalls: false
        )
    }

    /// The path that errors of these functions name.
    private static func path(of directory: Directory?) -> FilePath {
        directory?.path ?? "/"
    }

    /// Returns all rights that a Landlock version can take away.
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

    /// The rights that stay allowed below the directory.
    private static func allowed(_ version: Int) -> UInt64 {
        var access =
            UInt64(LANDLOCK_ACCESS_FS_READ_FILE) | UInt64(LANDLOCK_ACCESS_FS_READ_DIR)
            | UInt64(LANDLOCK_ACCESS_FS_WRITE_FILE) | UInt64(LANDLOCK_ACCESS_FS_MAKE_REG)
            | UInt64(LANDLOCK_ACCESS_FS_MAKE_DIR) | UInt64(LANDLOCK_ACCESS_FS_MAKE_SYM)
        if version >= 3 { access |= UInt64(LANDLOCK_ACCESS_FS_TRUNCATE) }
        return access
    }
}

/// Resource limits of a process (setrlimit(2)).
package struct ResourceLimits: Hashable, Sendable {
    /// The size in bytes of the largest file that the process may write.
    package var fileSize: UInt64
    /// The seconds of processor time that the process may use from now on.
    package var cpuSecondLimit: UInt64

    /// Address space in bytes: a decoder with its dictionary, and the Swift runtime.
    private static let addressSpace: UInt64 = 4 << 30
    private static let openFiles: UInt64 = 256

    /// Creates limits from the size of the largest file, in bytes, and the remaining processor time, in
    /// seconds.
    package init(fileSize: UInt64, cpuSecondLimit: UInt64) {
        self.fileSize = fileSize
        self.cpuSecondLimit = cpuSecondLimit
    }

    /// Applies these limits, and limits of address space and open files, to the whole process, permanently;
    /// disables core dumps.
    package func apply() throws(FileError) {
        try Self.set(CInt(RLIMIT_CORE.rawValue), limit: 0)
        try Self.set(CInt(RLIMIT_AS.rawValue), limit: Self.addressSpace)
        try Self.set(CInt(RLIMIT_NOFILE.rawValue), limit: Self.openFiles)
        try Self.set(CInt(RLIMIT_FSIZE.rawValue), limit: fileSize)
        let used = stage_cpu_seconds()
        try Self.set(CInt(RLIMIT_CPU.rawValue), limit: used &+ cpuSecondLimit)
    }

    private static func set(_ resource: CInt, limit: UInt64) throws(FileError) {
        try Directory.attempt("limit", at: "/proc/self/limits") {
            stage_set_limit(resource, limit, 1)
        }
    }
}
