package import StageModel
import StageSystem
package import SystemPackage

/// The names inside a container.
///
/// ```
/// packs/<id>                     → ../generations/<id>/<generation>/content
/// generations/<id>/<generation>/content/…   the files
/// generations/<id>/<generation>/pack.json   the record of the generation
/// generations/<id>/<generation>/files       their digests
/// generations/<id>/<generation>/index       the index of an indexed pack
/// generations/<id>/<generation>/lease       locked shared by readers
/// shared/                        files that the group's applications and extensions share
/// files/<digest>/content/…       single files of packs that are not staged
/// files/<digest>/lease           locked shared by processes that use them
/// pins/<id>.json                the pin of a pack
/// trust/<application>/           the signed metadata that verified the manifest
/// staging/ downloads/ locks/ manifest/ history/ extension/   not for readers
/// container.json                            the version of this layout
/// ```
package enum ContainerLayout {
    /// The version of the layout that this code reads and writes.
    package static let formatVersion = 1

    /// The record of the container itself.
    package static let record: FilePath.Component = "container.json"

    /// Returns whether the directory at a path has the record of a container.
    package static func isContainer(_ path: FilePath) -> Bool {
        FileStatus.exists(path.appending(record))
    }

    /// Links from staged packs to their current generations.
    package static let packs: FilePath.Component = "packs"
    /// The generations of all packs, in one directory per pack.
    package static let generations: FilePath.Component = "generations"
    static let staging: FilePath.Component = "staging"
    /// Single files of packs that are not staged.
    package static let files: FilePath.Component = "files"
    /// Partial files of downloads.
    package static let downloads: FilePath.Component = "downloads"
    static let locks: FilePath.Component = "locks"
    static let manifest: FilePath.Component = "manifest"
    static let history: FilePath.Component = "history"
    static let pins: FilePath.Component = "pins"
    static let trust: FilePath.Component = "trust"
    /// Folders that extensions use while they run.
    package static let extensions: FilePath.Component = "extension"
    /// The folder that the group's applications and extensions share, for any purpose.
    package static let shared: FilePath.Component = "shared"

    /// The directory of a generation that holds the pack's files.
    package static let content: FilePath.Component = "content"
    /// The record of a generation, beside its content.
    package static let packRecord: FilePath.Component = "pack.json"
    /// The listing of a generation, beside its content.
    package static let listing: FilePath.Component = "files"
    /// The index of an indexed pack's generation, beside its content.
    package static let index: FilePath.Component = "index"
    static let lease: FilePath.Component = "lease"

    /// The directories that every container contains.
    static let directories = [
        packs, generations, staging, downloads, locks, manifest, history,
    ]

    /// The directories that a container contains once they are used.
    private static let optionalDirectories = [files, pins, trust, extensions, shared]

    /// The names that a container may contain.
    static let known = Set(directories + optionalDirectories + [record])

    /// Returns the target of the link that makes `generation` the current one of `id`.
    static func linkTarget(of id: PackID, to generation: GenerationName) -> String {
        "../generations/\(id)/\(generation)/content"
    }

    /// Returns the generation that a link in `packs/` refers to, or `nil` if the link has another form.
    static func generation(inLink target: String, of id: PackID) -> GenerationName? {
        generationText(inLink: target, of: id).flatMap { FilePath.Component(String($0)) }
            .map(GenerationName.init)
    }

    /// Returns the name of the generation that a link in `packs/` refers to, or `nil` if the link has another
    /// form.
    static func generationText(inLink target: String, of id: PackID) -> Substring? {
        // Compares bytes, which is faster than `String.hasSuffix(_:)` for containers with many packs.
        let (prefix, suffix) = ("../generations/\(id.text)/", "/content")
        let length = target.utf8.count - prefix.utf8.count - suffix.utf8.count
        guard length >= 0, target.hasPrefix(prefix),
            target.utf8.suffix(suffix.utf8.count).elementsEqual(suffix.utf8)
        else { return nil }
        let name = Substring(target.utf8.dropFirst(prefix.utf8.count).prefix(length))
        return name.firstIndex(ofByte: UInt8(ascii: "/")) == nil ? name : nil
    }
}

extension Identifier {
    /// The identifier as a file name.
    package var component: FilePath.Component { FilePath.Component(known: text) }
}

extension ContainerLayout {
    /// Prefix of extensions' folders that are being removed.
    package static let removedPrefix = "removed."

    /// Prefix of the names of downloads that are not objects of a manifest.
    static let fileDownloadPrefix = "file-"

    /// Returns the name in `downloads/` of a file that no manifest names, from a digest that identifies it.
    package static func downloadName(ofFile key: Digest) -> FilePath.Component {
        FilePath.Component(known: "\(fileDownloadPrefix)\(key)")
    }

    /// Returns the name in `downloads/` of an object: its digest, so that packs and versions that share an
    /// archive share its download.
    package static func downloadName(of digest: Digest) -> FilePath.Component {
        FilePath.Component(known: digest.description)
    }

    /// Returns the part of a name in `downloads/` that identifies the download; its record and its lock have
    /// the same part.
    static func digestPart(of name: FilePath.Component) -> Substring {
        // The temporary name of a record also has a leading dot.
        name.string.drop { $0 == "." }.prefix { $0 != "." }
    }
}
