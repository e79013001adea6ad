import CLinux
import Glibc
public import SystemPackage

/// The files that an untrusted program may access, and its resource limits.
///
/// Landlock confines files, and a system call filter (seccomp(2)) allows only the calls that runtimes need.
/// Both work without privileges and in chroots. On a kernel that lacks one of them, ``SandboxedProgram``
/// decides by ``Restrictions`` whether to start the program.
public struct Sandbox: Equatable, Sendable {
    /// Files that may be read; those that do not exist are skipped.
    public var readable: [FilePath]
    /// Files that may be read and executed; those that do not exist are skipped.
    public var executable: [FilePath]
    /// Directories in which everything except executing is allowed; they must exist.
    public var writable: [FilePath]
    /// The bytes of address space of each process.
    public var addressSpace: UInt64
    /// The bytes of the largest file that may be written.
    public var fileSize: UInt64
    /// The seconds of processor time of each process.
    public var cpuSecondLimit: UInt64

    /// Creates a sandbox from accessible files and resource limits.
    public init(
        readable: [FilePath],
        executable: [FilePath],
        writable: [FilePath],
        addressSpace: UInt64,
        fileSize: UInt64,
        cpuSecondLimit: UInt64
    ) {
        self.readable = readable
        self.executable = executable
        self.writable = writable
        self.addressSpace = addressSpace
        self.fileSize = fileSize
        self.cpuSecondLimit = cpuSecondLimit
    }

    /// Returns the space reserves of the file systems that may be written to.
    func reserves() throws(FileError) -> [SpaceReserve] {
        try writable.map { path throws(FileError) in try SpaceReserve(at: path) }
    }

    /// The maximum number of open files of a process.
    static let openFiles: UInt64 = 256

    /// The restrictions that the kernel applied to a program.
    public struct Restrictions: Hashable, Sendable {
        /// Indicates whether files outside the sandbox can neither be read nor written.
        public var files: Bool
        /// Indicates whether system calls outside the sandbox are refused.
        public var calls: Bool

        /// Creates the value from its parts.
        public init(files: Bool, calls: Bool) {
            self.files = files
            self.calls = calls
        }

        /// All restrictions of a sandbox.
        public static let all = Restrictions(files: true, calls: true)
        /// No restrictions.
        public static let none = Restrictions(files: false, calls: false)

        /// The restrictions without which this process does not start an untrusted program: all of them for
        /// root.
        public static var required: Restrictions { geteuid() == 0 ? .all : .none }

        /// Returns whether these restrictions include all of the others.
        public func isSuperset(of others: Restrictions) -> Bool {
            (files || !others.files) && (calls || !others.calls)
        }
    }

    /// A Landlock ruleset, closed when its owner releases it.
    struct Ruleset: ~Copyable {
        /// The open ruleset, -1 where the kernel has no Landlock.
        let descriptor: CInt
        /// Indicates whether signals to processes outside the sandbox are blocked.
        let confinesSignals: Bool
        /// The file access rights that the ruleset handles.
        let files: UInt64

        deinit {
            if descriptor >= 0 { close(descriptor) }
        }
    }

    /// Creates the Landlock ruleset of the sandbox.
    ///
    /// - Parameter allowsConnections: Whether TCP connections are allowed; binding a port never is.
    /// - Returns: The ruleset.
    /// - Throws: ``FileError`` if a directory of ``writable`` cannot be opened, or the kernel has Landlock
    ///   and refuses.
    func ruleset(allowsConnections: Bool = false) throws(FileError) -> Ruleset {
        let version = Int(stage_landlock_version())
        guard version >= 1 else {
            return Ruleset(descriptor: -1, confinesSignals: false, files: 0)
        }
        var handled = Confinement.handled(version)
        // Only LANDLOCK_ACCESS_NET_BIND_TCP.
        if allowsConnections { handled.network &= 1 }
        let size = MemoryLayout<UInt64>.size * (version < 4 ? 1 : version < 6 ? 2 : 3)
        let ruleset = Ruleset(
            descriptor: try Directory.attempt("confine to", at: "sandbox") {
                unsafe stage_landlock_create(&handled, size)
            },
            confinesSignals: version >= 6,
            files: handled.files
        )
        let read = UInt64(LANDLOCK_ACCESS_FS_READ_FILE) | UInt64(LANDLOCK_ACCESS_FS_READ_DIR)
        let execute = read | UInt64(LANDLOCK_ACCESS_FS_EXECUTE)
        let devices = UInt64(LANDLOCK_ACCESS_FS_MAKE_CHAR) | UInt64(LANDLOCK_ACCESS_FS_MAKE_BLOCK)
        let write = ~(UInt64(LANDLOCK_ACCESS_FS_EXECUTE) | devices)
        for path in readable { try ruleset.allow(read, at: path, isRequired: false) }
        for path in executable { try ruleset.allow(execute, at: path, isRequired: false) }
        for path in writable { try ruleset.allow(write, at: path, isRequired: true) }
        for path in Self.streams {
            try ruleset.allow(
                UInt64(LANDLOCK_ACCESS_FS_READ_FILE) | UInt64(LANDLOCK_ACCESS_FS_WRITE_FILE),
                at: path,
                isRequired: false
            )
        }
        return ruleset
    }

    /// Harmless devices that programs expect.
    private static let streams: [FilePath] = [
        "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
    ]
}

extension Sandbox.Ruleset {
    /// Allows `access` at `path`, reduced to the handled rights and to those that its file type can have.
    fileprivate borrowing func allow(
        _ access: UInt64,
        at path: FilePath,
        isRequired: Bool
    ) throws(FileError) {
        let file = unsafe path.withPlatformString { unsafe stage_open_path($0) }
        guard file >= 0 else {
            let error = Errno(rawValue: errno)
            // An inaccessible path needs no rule.
            guard isRequired || !Self.absences.contains(error) else {
                return
            }
            throw FileError("confine to", path: path, errno: error)
        }
        defer { close(file) }
        var status = stat()
        try Directory.attempt("inspect", at: path) { unsafe fstat(file, &status) }
        var rights = access & files
        if status.st_mode & S_IFMT != S_IFDIR { rights &= Self.rightsOfFiles }
        try Directory.attempt("confine to", at: path) {
            stage_landlock_allow(descriptor, file, rights)
        }
    }

    /// Errors of a path that does not exist for this user.
    private static let absences: [Errno] = [
        .noSuchFileOrDirectory, .permissionDenied, .notDirectory, .tooManySymbolicLinkLevels,
    ]

    /// The rights that apply to files other than directories.
    private static let rightsOfFiles =
        UInt64(LANDLOCK_ACCESS_FS_EXECUTE) | UInt64(LANDLOCK_ACCESS_FS_READ_FILE)
        | UInt64(LANDLOCK_ACCESS_FS_WRITE_FILE) | UInt64(LANDLOCK_ACCESS_FS_TRUNCATE)
}
