import CLinux
import Glibc
public import SystemPackage

/// What a program that is not trusted may touch, and how much it may use.
///
/// Landlock confines files, a filter of system calls (seccomp(2)) everything else: the program may make
/// the calls that runtimes need, and no others. Both work without privileges and within chroots. On a
/// kernel that lacks one of them, ``SandboxedProgram`` decides by ``Restrictions`` whether to start the
/// program.
public struct Sandbox: Equatable, Sendable {
    /// What may be read; what does not exist is passed over.
    public var readable: [FilePath]
    /// What may be read and executed; what does not exist is passed over.
    public var executable: [FilePath]
    /// The directories in which everything but executing is allowed; they have to exist.
    public var writable: [FilePath]
    /// The bytes of address space that each process may have.
    public var addressSpace: UInt64
    /// The bytes that a file may have that is written.
    public var fileSize: UInt64
    /// The seconds of processor time that each process may have.
    public var processorSeconds: UInt64

    /// Creates a sandbox from what may be touched and used.
    public init(
        readable: [FilePath],
        executable: [FilePath],
        writable: [FilePath],
        addressSpace: UInt64,
        fileSize: UInt64,
        processorSeconds: UInt64
    ) {
        self.readable = readable
        self.executable = executable
        self.writable = writable
        self.addressSpace = addressSpace
        self.fileSize = fileSize
        self.processorSeconds = processorSeconds
    }

    /// Returns the reserves of the file systems that may be written to.
    func reserves() throws(FileError) -> [SpaceReserve] {
        try writable.map { path throws(FileError) in try SpaceReserve(at: path) }
    }

    /// The most files that a process may have open.
    static let openFiles: UInt64 = 256

    /// What the kernel took from a program.
    public struct Restrictions: Hashable, Sendable {
        /// Whether files outside the sandbox can neither be read nor written.
        public var files: Bool
        /// Whether system calls are refused that the sandbox does not allow.
        public var calls: Bool

        /// Creates the value from its parts.
        public init(files: Bool, calls: Bool) {
            self.files = files
            self.calls = calls
        }

        /// Everything that a sandbox takes.
        public static let all = Restrictions(files: true, calls: true)
        /// Nothing.
        public static let none = Restrictions(files: false, calls: false)

        /// The restrictions without which this process starts no program that is not trusted: all for
        /// root, whose files are those of the system.
        public static var required: Restrictions { geteuid() == 0 ? .all : .none }

        /// Whether these restrictions include the others.
        public func include(_ others: Restrictions) -> Bool {
            (files || !others.files) && (calls || !others.calls)
        }
    }

    /// A Landlock ruleset of a sandbox, closed when its owner goes.
    struct Ruleset: ~Copyable {
        /// The open ruleset, -1 where the kernel has no Landlock.
        let descriptor: CInt
        /// Whether signals do not leave the sandbox.
        let confinesSignals: Bool
        /// The rights to files that it handles.
        let files: UInt64

        deinit {
            if descriptor >= 0 { close(descriptor) }
        }
    }

    /// Makes the ruleset of the sandbox.
    ///
    /// - Parameter allowsConnections: Whether TCP connections may be made; ports are never bound.
    /// - Returns: The ruleset.
    /// - Throws: ``FileError`` if a directory of ``writable`` cannot be opened, or the kernel has
    ///   Landlock and refuses.
    func ruleset(allowsConnections: Bool = false) throws(FileError) -> Ruleset {
        let version = Int(stage_landlock_version())
        guard version >= 1 else {
            return Ruleset(descriptor: -1, confinesSignals: false, files: 0)
        }
        var handled = Confinement.handled(version)
        // LANDLOCK_ACCESS_NET_BIND_TCP alone.
        if allowsConnections { handled.network &= 1 }
        let size = MemoryLayout<UInt64>.size * (version < 4 ? 1 : version < 6 ? 2 : 3)
        let ruleset = Ruleset(
            descriptor: try Directory.attempt("confine to", "sandbox") {
                unsafe stage_landlock_create(&handled, size)
            },
            confinesSignals: version >= 6,
            files: handled.files
        )
        let read = UInt64(LANDLOCK_ACCESS_FS_READ_FILE) | UInt64(LANDLOCK_ACCESS_FS_READ_DIR)
        let execute = read | UInt64(LANDLOCK_ACCESS_FS_EXECUTE)
        let devices = UInt64(LANDLOCK_ACCESS_FS_MAKE_CHAR) | UInt64(LANDLOCK_ACCESS_FS_MAKE_BLOCK)
        let write = ~(UInt64(LANDLOCK_ACCESS_FS_EXECUTE) | devices)
        for path in readable { try ruleset.allow(read, path, isRequired: false) }
        for path in executable { try ruleset.allow(execute, path, isRequired: false) }
        for path in writable { try ruleset.allow(write, path, isRequired: true) }
        for path in Self.streams {
            try ruleset.allow(
                UInt64(LANDLOCK_ACCESS_FS_READ_FILE) | UInt64(LANDLOCK_ACCESS_FS_WRITE_FILE),
                path,
                isRequired: false
            )
        }
        return ruleset
    }

    /// Devices without effect on anything, which programs expect to be there.
    private static let streams: [FilePath] = [
        "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
    ]
}

extension Sandbox.Ruleset {
    /// Allows `access`, as far as it is handled and what is at `path` can have it.
    fileprivate borrowing func allow(
        _ access: UInt64,
        _ path: FilePath,
        isRequired: Bool
    ) throws(FileError) {
        let file = unsafe path.withPlatformString { unsafe stage_open_path($0) }
        guard file >= 0 else {
            let error = Errno(rawValue: errno)
            // One that cannot be reached needs no right.
            guard isRequired || !Self.absences.contains(error) else {
                return
            }
            throw FileError("confine to", path, error)
        }
        defer { close(file) }
        var status = stat()
        try Directory.attempt("look at", path) { unsafe fstat(file, &status) }
        var rights = access & files
        if status.st_mode & S_IFMT != S_IFDIR { rights &= Self.rightsOfFiles }
        try Directory.attempt("confine to", path) {
            stage_landlock_allow(descriptor, file, rights)
        }
    }

    /// The errors of a path at which there is nothing for this user.
    private static let absences: [Errno] = [
        .noSuchFileOrDirectory, .permissionDenied, .notDirectory, .tooManySymbolicLinkLevels,
    ]

    /// The rights that something other than a directory can have.
    private static let rightsOfFiles =
        UInt64(LANDLOCK_ACCESS_FS_EXECUTE) | UInt64(LANDLOCK_ACCESS_FS_READ_FILE)
        | UInt64(LANDLOCK_ACCESS_FS_WRITE_FILE) | UInt64(LANDLOCK_ACCESS_FS_TRUNCATE)
}
