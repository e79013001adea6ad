import StageEngine
import StageModel
import StagePack
import StagePublish
import StageSystem
import SystemPackage

/// A manifest on a publisher's disk.
struct ManifestFile {
    private let path: FilePath
    /// The path as it was given.
    let name: String

    init(_ path: String) {
        // Follows a link, so that the target of the link is changed.
        self.path = FilePath(path).resolved ?? FilePath(path)
        name = path
    }

    /// Returns the path of the manifest in a directory that was named instead of a file; `nil` if there is none.
    static func manifest(inDirectory name: String) -> String? {
        let path = FilePath(name).appending("manifest.json")
        return FileStatus.exists(path) ? path.string : nil
    }

    /// Reads the manifest.
    func read() throws(CommandFailure) -> ManifestDocument {
        let bytes = try bytes()
        do throws(ManifestError) {
            return try ManifestDocument(json: bytes)
        } catch {
            throw CommandFailure(.manifest(error), manifest: path.string)
        }
    }

    /// Reads the bytes of the manifest.
    func bytes() throws(CommandFailure) -> [UInt8] {
        do throws(FileError) {
            return try File.open(readingRegular: path).readAll(limit: ManifestLimits.byteCount)
        } catch {
            throw Self.failure(error, named: name)
        }
    }

    /// Returns the failure for a manifest that cannot be read; `name` is its path as it was given.
    static func failure(_ error: FileError, named name: String) -> CommandFailure {
        if error.errno == .fileTooLarge {
            let limit = ManifestLimits.byteCount
            return CommandFailure(
                status: .manifestInvalid,
                message:
                    "\(name.forDisplay()): expected a manifest of at most \(limit.quantity(of: "byte")) "
                    + "(\(limit >> 20) MiB), found a larger file",
                hint: ManifestLint.adviceForSize,
                retryAdvice: .never
            )
        }
        let isURL = name.endOfScheme != nil
        return CommandFailure(
            status: isURL ? .usage : CommandFailure.status(ofArgument: error),
            message: isURL
                ? "expected a file, found the URL '\(name.forDisplay())'" : error.description,
            hint: isURL
                ? "name the manifest's file on this machine" : hint(for: error, named: name),
            retryAdvice: .never
        )
    }

    private static func hint(for error: FileError, named name: String) -> String? {
        if error.errno == .noSuchFileOrDirectory {
            return "'stagepack manifest create --help' says how to make one"
        }
        guard error.isNotRegularFile else { return nil }
        return manifest(inDirectory: name).map { "name the manifest: \($0.forDisplay())" }
            ?? "name the manifest's file"
    }

    /// Changes the manifest in its current state, and replaces the file atomically and durably; an `edit`
    /// that returns `false` leaves the file unchanged.
    ///
    /// Excludes other commands that change the manifest; waits for them at most for `timeout`.
    func change(
        timeout: Duration = .seconds(30),
        _ edit: (inout ManifestDocument) throws(ManifestEditError) -> Bool
    ) async throws(CommandFailure) -> (document: ManifestDocument, isChanged: Bool) {
        // Reports errors of the file before waiting for the lock.
        _ = try read()
        let (directory, component) = try location()
        let lock = try await lock(component, in: directory, timeout: timeout)
        return try replace(component, in: directory, holding: lock, edit: edit)
    }

    private func replace(
        _ component: FilePath.Component,
        in directory: Directory,
        holding lock: borrowing LockFile,
        edit: (inout ManifestDocument) throws(ManifestEditError) -> Bool
    ) throws(CommandFailure) -> (document: ManifestDocument, isChanged: Bool) {
        var document = try read()
        do throws(ManifestEditError) {
            guard try edit(&document) else { return (document, false) }
        } catch {
            var failure = CommandFailure(error, manifest: name)
            if case .unknownPack(let id) = error {
                failure.hint = Self.hint(besides: id, in: document.manifest)
            }
            throw failure
        }
        do throws(FileError) {
            // This process has the lock, so all temporary files are leftovers of killed commands.
            TemporaryFile.removeLeftovers(of: component, in: directory)
            // Servers distinguish versions by size and modification time in seconds, and need the permissions that the
            // publisher gave the file.
            let before = try directory.status(FilePath(component))?.modified
            try directory.replace(document.json(), at: component, modifiedAfter: before)
        } catch {
            throw CommandFailure(output: error)
        }
        return (document, true)
    }

    /// Returns a hint that names packs of a manifest without the pack `id`; `nil` if it has no packs.
    private static func hint(besides id: PackID, in manifest: Manifest) -> String? {
        let known = manifest.packs.map(\.id.text)
        if let similar = id.text.mostSimilar(in: known) { return "did you mean '\(similar)'?" }
        return known.isEmpty ? nil : "the manifest has \(known.named(upTo: 5, of: "pack"))"
    }

    /// Returns the directory of the manifest, and its name there.
    func location() throws(CommandFailure) -> (Directory, FilePath.Component) {
        let above = path.removingLastComponent()
        do throws(FileError) {
            guard let last = path.lastComponent else {
                throw FileError("open", path: path, errno: .isDirectory)
            }
            return (try Directory.open(above.isEmpty ? "." : above), last)
        } catch {
            throw CommandFailure(output: error)
        }
    }

    /// Takes the lock for replacing the manifest.
    ///
    /// Locks a separate file: any reader of the manifest could hold a lock on the manifest itself.
    func lock(
        _ component: FilePath.Component,
        in directory: Directory,
        timeout: Duration
    ) async throws(CommandFailure) -> LockFile {
        let lock = FilePath.Component(".\(component.string).lock") ?? component
        do throws(FileError) {
            return try await LockFile.wait(
                for: lock,
                in: directory,
                mode: .exclusive,
                timeout: timeout
            )
        } catch {
            if Task.isCancelled { throw CommandFailure(StageError.cancelled) }
            var failure = CommandFailure(output: error)
            if error.isHeldByOthers {
                failure.message = "\(name.forDisplay()): another process is changing it"
            }
            throw failure
        }
    }

    /// Returns the relative URL of a file: its path from the manifest's directory, or only its name if the
    /// file is not below that directory.
    func reference(to file: FilePath) -> (url: String, isBelow: Bool) {
        let directory = path.absolute.removingLastComponent()
        var location = (file.resolved ?? file).absolute
        let isBelow = location.removePrefix(directory)
        if !isBelow { location = FilePath(file.lastComponent?.string ?? "") }
        return (location.string.utf8.map(Self.encoded).joined(), isBelow)
    }

    /// Returns a byte of a path in the form for a URL (RFC 3986, section 3.3).
    private static func encoded(_ byte: UInt8) -> String {
        let character = Unicode.Scalar(byte)
        if character.isASCII,
            character.properties.isAlphabetic || "0123456789-._~/".utf8.contains(byte)
        {
            return String(character)
        }
        let digits = String(byte, radix: 16, uppercase: true)
        return digits.count == 1 ? "%0\(digits)" : "%\(digits)"
    }
}

/// Output of `manifest add` and `manifest set-policy`.
struct ManifestEditReport: Encodable, CustomStringConvertible {
    var manifest: String
    var revision: Int
    var pack: PackID
    var version: Int
    var policy: String
    var isChanged: Bool

    init(file: String, document: ManifestDocument, pack: PackID, isChanged: Bool) {
        manifest = file
        revision = document.manifest.revision
        self.pack = pack
        let offered = document.manifest[pack]
        version = offered?.version ?? 0
        policy =
            switch offered?.policy {
            case .essential: "essential"
            case .prefetch: "prefetch"
            case .onDemand, nil: "onDemand"
            }
        self.isChanged = isChanged
    }

    var description: String {
        let location = "\(manifest.forDisplay()), revision \(revision)"
        return isChanged
            ? "\(pack): version \(version), \(policy): in \(location)"
            : "\(pack): version \(version), \(policy): as it was in \(location)"
    }
}
