import StageModel
import StagePublish
import StageSystem
import SystemPackage

/// A manifest on a publisher's disk.
struct ManifestFile {
    private let path: FilePath

    init(_ path: String) {
        // A link is followed, so that what it leads to is what changes.
        self.path = FilePath(path).resolved ?? FilePath(path)
    }

    /// Reads the manifest.
    func read() throws(CommandFailure) -> ManifestDocument {
        let bytes: [UInt8]
        do throws(FileError) {
            bytes = try File.open(readingRegular: path).readAll(limit: ManifestLimits.byteCount)
        } catch {
            throw CommandFailure(
                status: .manifestUnavailable,
                message: error.description,
                hint: error.errno == .noSuchFileOrDirectory
                    ? "'stagepack manifest create' makes one" : nil,
                retry: .never
            )
        }
        do throws(ManifestError) {
            return try ManifestDocument(json: bytes)
        } catch {
            throw CommandFailure(.manifest(error), manifest: path.string)
        }
    }

    /// Puts the document in the place of the file, in one step.
    func write(_ document: ManifestDocument) throws(CommandFailure) {
        let above = path.removingLastComponent()
        guard let name = path.lastComponent else { return }
        do throws(FileError) {
            try Directory.open(above.isEmpty ? "." : above)
                .write(document.json(), to: name, durably: true)
        } catch {
            throw CommandFailure(output: error)
        }
    }

    /// The relative URL of a file: its path from the manifest's directory, its name if it is elsewhere.
    func reference(to file: FilePath) -> String {
        let directory = path.absolute.removingLastComponent()
        var place = (file.resolved ?? file).absolute
        if !place.removePrefix(directory) { place = FilePath(file.lastComponent?.string ?? "") }
        return place.string.utf8.map(Self.encoded).joined()
    }

    /// A byte of a path as it is in a URL (RFC 3986, section 3.3).
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

/// What `manifest add` and `manifest set-policy` print.
struct ManifestEditReport: Encodable, CustomStringConvertible {
    var manifest: String
    var revision: Int
    var pack: PackID
    var version: Int
    var policy: String
    var isChanged: Bool

    init(_ file: String, _ document: ManifestDocument, _ pack: PackID, isChanged: Bool) {
        manifest = file
        revision = document.manifest.revision
        self.pack = pack
        let offered = document.manifest[pack]
        version = offered?.version ?? 0
        policy =
            switch offered?.policy {
            case .essential: "essential"
            case .prefetch: "prefetch"
            case .onDemand, nil: "on-demand"
            }
        self.isChanged = isChanged
    }

    var description: String {
        let place = "\(manifest.forDisplay()), revision \(revision)"
        return isChanged
            ? "\(pack): version \(version), \(policy): in \(place)"
            : "\(pack): version \(version), \(policy): as it was in \(place)"
    }
}
