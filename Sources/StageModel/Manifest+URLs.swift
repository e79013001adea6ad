extension Manifest {
    /// Returns where an archive of the manifest is, in the order in which to ask.
    ///
    /// An absolute URL stands for itself. A relative one is resolved (RFC 3986, section 5) against each
    /// of ``baseURLs`` in turn or, where there are none, against `manifestURL`: the URL that answered
    /// when the manifest was fetched. URLs that mean the same place are listed once.
    public func urls(for archive: PackArchive, manifestURL: String) -> [String] {
        let reference = URLReference(archive.url)
        if reference.scheme != nil { return [archive.url] }
        var urls: [String] = []
        for base in baseURLs.isEmpty ? [manifestURL] : baseURLs {
            let url = URLReference(base).resolving(reference).text
            if !urls.contains(url) { urls.append(url) }
        }
        return urls
    }
}
